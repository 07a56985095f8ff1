"""A region as a stand-alone model that others can open, run and send around; made with onnx-graphsurgeon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TypeProto, ValueInfoProto

from bisect_align.errors import ModelError, one_line
from bisect_align.model.dtypes import elem_type
from bisect_align.model.graph import Graph, graph_of
from bisect_align.model.infer import TensorType
from bisect_align.model.load import read
from bisect_align.model.region import Region
from bisect_align.model.segment import segment


def cut(
    source: Path | ModelProto | None,
    graph: Graph,
    region: Region,
    *,
    types: Mapping[str, TensorType] | None = None,
    outputs: Sequence[str] = (),
) -> ModelProto:
    """The region as a model: its boundary as inputs, its output (or the outputs named, made by its nodes) as output, weights and
    settled shape values inside.

    source: the file or the model to cut from, as it was before any up-cast; None cuts from the graph itself. Types and shapes,
    opset imports, IR version, local functions and metadata are those of the source, which is never edited.
    types: of tensors whose type or rank the source does not tell (those of custom operators), as found in a run.
    Raises ModelError where the source has not these tensors, or a type is not known.
    """
    origin = _origin(source, graph)
    made = {graph.nodes[index].makes for index in region.nodes}
    try:
        nodes = sorted({origin.producer[names[0]] for names in made if names})
    except KeyError as missing:
        what = f"has no tensor {missing}"
        raise ModelError(what, where="the model to cut from", hint="is it the model of this graph?") from None
    asked = tuple(outputs) or (region.output,)
    stated = {name: _stated(name, origin, types or {}) for name in (*region.boundary, *asked, *region.hidden)}
    feeds: dict[str, np.dtype[Any]] = {}
    for name in region.boundary:
        if stated[name] is None:
            raise ModelError("its type is not known, so that no model can be cut here", where=f"tensor {name!r}")
        kinds = (origin.types.get(name), (types or {}).get(name))
        known = [kind.dtype for kind in kinds if kind is not None and kind.dtype is not None]
        feeds[name] = known[0] if known else np.dtype(np.float32)  # of no account where the type is no tensor's
    plain = segment(origin, nodes, feeds, asked)
    tidy = _through_graphsurgeon(plain)
    inside = {name for node in tidy.graph.node for name in node.output}
    _restore(tidy.graph.input, region.boundary, stated)
    _restore(tidy.graph.output, asked, stated)
    _restore(
        tidy.graph.value_info,
        [name for name in region.hidden if name in inside and name not in asked and stated[name] is not None],
        stated,
    )
    return tidy


def _origin(source: Path | ModelProto | None, graph: Graph) -> Graph:
    if source is None:
        return graph
    model, folder = (source, graph.folder) if isinstance(source, ModelProto) else (read(source)[0], source.parent)
    return graph_of(model, folder=folder).with_settled(graph.settled)


def _through_graphsurgeon(model: ModelProto) -> ModelProto:
    import onnx_graphsurgeon  # slow to import, and needed for nothing else
    from onnx_graphsurgeon.logger.logger import G_LOGGER

    # Functions go past it: it would write them anew, and nothing in them changes.
    functions = list(model.functions)
    model.ClearField("functions")
    try:
        # it prints to standard output, where JSON may be; what is critical it raises as well
        with G_LOGGER.suppress(G_LOGGER.CRITICAL + 1):
            surgeon = onnx_graphsurgeon.import_onnx(model)
            surgeon.cleanup(remove_unused_graph_inputs=False).toposort()
            made: ModelProto = onnx_graphsurgeon.export_onnx(surgeon, do_type_check=False, opset_imports=list(model.opset_import))
    except Exception as error:  # a foreign library over a foreign model: whatever it is, the user gets one line
        raise ModelError(
            f"onnx-graphsurgeon cannot cut the region: {one_line(error)}", where=model.graph.output[0].name
        ) from error
    made.ir_version = model.ir_version
    made.producer_name, made.producer_version = model.producer_name, model.producer_version
    made.functions.extend(functions)
    del made.metadata_props[:]
    made.metadata_props.extend(model.metadata_props)
    return made


def _stated(name: str, origin: Graph, types: Mapping[str, TensorType]) -> TypeProto | None:
    """The origin's type of the tensor; the one given, where the origin tells none or leaves out the rank."""
    proto, given = origin.type_protos.get(name), types.get(name)
    vague = proto is None or (proto.WhichOneof("value") == "tensor_type" and not proto.tensor_type.HasField("shape"))
    if not vague or given is None or given.dtype is None:
        return proto
    kind = proto.tensor_type.elem_type if proto is not None else 0
    return onnx.helper.make_tensor_type_proto(kind or elem_type(given.dtype), given.shape)


def _restore(values: Any, names: Iterable[str], stated: Mapping[str, TypeProto | None]) -> None:
    """Write value infos with the types of the origin: sequences, symbols and odd element types survive no conversion."""
    del values[:]
    for name in names:
        proto = stated[name]
        values.append(ValueInfoProto(name=name) if proto is None else onnx.helper.make_value_info(name, proto))
