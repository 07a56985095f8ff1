"""Some nodes of a graph as a model of their own, for an engine to run: plain protobuf, nothing inferred."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

from bisect_align.model.dtypes import elem_type
from bisect_align.model.graph import Graph, Node

# Since this version an initializer needs not be a graph input as well.
_FREE_INITIALIZERS = 4


def segment(
    graph: Graph,
    nodes: Sequence[int],
    feeds: Mapping[str, np.dtype[Any]],
    outputs: Sequence[str],
    as_inputs: Collection[str] = (),
    *,
    by_reference: int | None = None,
) -> ModelProto:
    """A model of these nodes (indices in topological order).

    Its inputs are the feeds, in their order, then the constants named in as_inputs; all other constants that the nodes read,
    or that are asked for as outputs, become initializers, and so does what is settled and made by none of the nodes. Inputs and
    outputs state no shape; a feed whose type in the graph is no tensor (a sequence, an optional) keeps that type. Opset imports,
    IR version (at least 4), metadata and local functions are kept. A feed named like a tensor that one of the nodes makes wins:
    the node's own value gets a hidden name. Absent outputs that an operator always makes get one too.
    by_reference: initializers of more than this many bytes carry no data but a reference (location = their name), for engines
    that are handed the arrays beside the model.

    Raises ValueError where a tensor that is read is neither fed, nor constant, nor made by an earlier one of the nodes.
    """
    model = ModelProto(ir_version=max(graph.ir_version, _FREE_INITIALIZERS), producer_name="bisect-align")
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in graph.opsets.items())
    model.functions.extend(graph.functions)
    model.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=value) for key, value in graph.metadata.items())
    body = model.graph
    body.name = graph.name
    body.input.extend(_stated(graph, name, dtype) for name, dtype in feeds.items())
    given = set(feeds)
    made: set[str] = set()
    labels: set[str] = set()
    constants: dict[str, None] = {}
    for index in nodes:
        node = graph.nodes[index]
        for name in node.reads:
            if name in given or name in made:
                continue
            if not graph.holds(name):
                raise ValueError(f"node {node.label} reads {name!r}, which is neither fed nor made before it")
            constants[name] = None
        body.node.append(_without(node.proto, given, made, graph) if given.intersection(node.makes) else node.proto)
        if node.name in labels:  # ONNX Runtime refuses two nodes of one name, but not nodes without
            body.node[-1].name = ""
        labels.add(node.name)
        _name_required_outputs(body.node[-1], node, graph)
        made.update(name for name in node.makes if name not in given)
    for name in outputs:
        if name in graph.constants and name not in given:
            constants[name] = None
        elif name not in made and name not in given:
            raise ValueError(f"{name!r} is asked for and not made")
    for name in as_inputs:
        if name in graph.constants and name not in given:
            constants.pop(name, None)
            body.input.append(_stated(graph, name, graph.types[name].dtype))
    body.initializer.extend(_initializer(graph, name, by_reference) for name in constants)
    body.output.extend(ValueInfoProto(name=name) for name in dict.fromkeys(outputs))
    return model


def _stated(graph: Graph, name: str, dtype: np.dtype[Any] | None) -> ValueInfoProto:
    known = graph.type_protos.get(name)
    if known is not None and known.WhichOneof("value") not in (None, "tensor_type"):
        return onnx.helper.make_value_info(name, known)
    if dtype is None:
        raise ValueError(f"the type of {name!r} is not known")
    return onnx.helper.make_tensor_value_info(name, elem_type(dtype), None)


def _name_required_outputs(proto: NodeProto, node: Node, graph: Graph) -> None:
    """Give a name to absent outputs that the operator always makes: ONNX Runtime's Split writes through a null pointer there.

    Optional outputs stay absent; naming them could make the operator compute something else.
    """
    absent = [place for place, name in enumerate(proto.output) if not name]
    if not absent:
        return
    try:
        formal = onnx.defs.get_schema(node.op, graph.opsets.get(node.domain, 1), node.domain).outputs
    except onnx.defs.SchemaError:
        return
    for place in absent:
        if formal and formal[min(place, len(formal) - 1)].option != onnx.defs.OpSchema.FormalParameterOption.Optional:
            proto.output[place] = f"{node.makes[0] if node.makes else node.label}!absent{place}"


def _without(node: NodeProto, given: set[str], made: set[str], graph: Graph) -> NodeProto:
    """The node with fresh names for outputs that are fed instead."""
    copy = NodeProto()
    copy.CopyFrom(node)
    for place, name in enumerate(copy.output):
        if name in given:
            fresh = f"{name}!unfed"
            while fresh in graph.order or fresh in given or fresh in made or fresh in graph.constants:
                fresh += "!"
            copy.output[place] = fresh
    return copy


def _initializer(graph: Graph, name: str, by_reference: int | None) -> TensorProto:
    tensor = graph.constants.get(name)
    if tensor is not None and by_reference is not None and tensor.data_type != TensorProto.STRING:
        values = graph.constant(name)
        if values.nbytes > by_reference:
            stub = TensorProto(name=name, data_type=tensor.data_type, data_location=TensorProto.EXTERNAL, dims=values.shape)
            stub.external_data.add(key="location", value=name)
            return stub
    return graph.initializer(name)
