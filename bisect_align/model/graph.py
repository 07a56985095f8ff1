"""The graph of a model as an immutable index: nodes in topological order, producers, consumers, constants, types."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, numpy_helper

from bisect_align.errors import ModelError
from bisect_align.model.constants import Array, array_of, constant_of, dense, embedded, is_external
from bisect_align.model.dtypes import elem_type, numpy_dtype
from bisect_align.model.infer import TensorType, tensor_type, type_protos
from bisect_align.model.scopes import captured
from bisect_align.model.sorting import spoken, topological

__all__ = ["Graph", "Node", "TensorType", "graph_of"]

# Up to here a constant's array is kept for good; larger ones only while somebody holds them (memory-mapped ones cost nothing).
_KEEP = 1 << 20

# Domain of the local functions by which an up-cast graph rounds; see upcast.py.
ROUNDING_DOMAIN = "bisect_align.round"

RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. index: position in topological order, where ties keep the file's order and Constant nodes do not count.

    domain is "" for ai.onnx. In inputs and outputs, "" is an absent optional. captured: outer tensors that If, Loop and Scan
    bodies read. In an up-cast graph a Cast to half precision keeps op and attributes, while its proto calls a rounding function.
    """

    index: int
    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...]
    proto: onnx.NodeProto = field(repr=False, compare=False)

    @property
    def reads(self) -> tuple[str, ...]:
        """All tensors that the node needs, each once: inputs, then captured ones."""
        return tuple(dict.fromkeys(name for name in (*self.inputs, *self.captured) if name))

    @property
    def makes(self) -> tuple[str, ...]:
        """The tensors that the node makes."""
        return tuple(name for name in self.outputs if name)

    @property
    def label(self) -> str:
        """How to speak of the node: its name, else operator and index."""
        return self.name or f"{self.op}@{self.index}"


@dataclass(frozen=True, eq=False)
class Graph:
    """Immutable index over a model; everything is made in O(nodes + edges) (the sort adds a logarithm).

    inputs: graph inputs that have no initializer. overridable: initializers that are graph inputs as well.
    constants: initializers and outputs of Constant nodes, dense; large ones may still stand in a file (see `constant`).
    types, type_protos: graph inputs, constants, and the node outputs that shape inference knows.
    tensors: non-empty node outputs in topological order; order: position of each in it.
    upcast_from: float16 or bfloat16, where the graph was up-cast to float32.
    settled: what steers shapes and follows from the shapes of the inputs alone, see `with_settled`.
    folder: where external data is looked for.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, TensorProto]
    types: Mapping[str, TensorType]
    type_protos: Mapping[str, onnx.TypeProto]
    producer: Mapping[str, int]
    consumers: Mapping[str, tuple[int, ...]]
    tensors: tuple[str, ...]
    order: Mapping[str, int]
    opsets: Mapping[str, int]
    ir_version: int
    functions: tuple[onnx.FunctionProto, ...]
    metadata: Mapping[str, str]
    overridable: tuple[str, ...] = ()
    upcast_from: np.dtype[Any] | None = None
    folder: Path | None = None
    name: str = "graph"
    settled: Mapping[str, Array] = field(default_factory=dict, repr=False)
    _kept: dict[str, Array] = field(default_factory=dict, repr=False)
    _seen: weakref.WeakValueDictionary[str, Array] = field(default_factory=weakref.WeakValueDictionary, repr=False)

    def constant(self, name: str) -> Array:
        """The values of what the graph holds, read-only. Raises KeyError, or ModelError where they cannot be read."""
        known = self.settled.get(name, self._kept.get(name))
        values = self._seen.get(name) if known is None else known
        if values is None:
            values = array_of(self.constants[name], self.folder)
            if values.nbytes <= _KEEP:
                self._kept[name] = values
            else:
                self._seen[name] = values
        return values

    def initializer(self, name: str) -> TensorProto:
        """What the graph holds, as a protobuf tensor of that name with its values inside (a copy)."""
        if name in self.settled:
            return numpy_helper.from_array(self.settled[name], name)
        return embedded(self.constants[name], self.folder, name)

    def holds(self, name: str) -> bool:
        """True for initializers, outputs of Constant nodes, and what is settled: nodes that read it need not be fed with it."""
        return name in self.constants or name in self.settled

    def is_constant(self, name: str) -> bool:
        """True for constants and for what is computed from constants only (never by an operator that draws at random)."""
        return name in self.constants or name in self._folded

    @cached_property
    def _folded(self) -> frozenset[str]:
        folded: set[str] = set()
        for node in self.nodes:
            if node.op not in RANDOM and all(name in self.constants or name in folded for name in node.reads):
                folded.update(node.makes)
        return frozenset(folded)

    def with_settled(self, values: Mapping[str, Array]) -> Graph:
        """The graph with values that are the same on every healthy target. Regions end there, and nodes that run without the ones
        that make these tensors read these values; in a pass that makes them, what is made is read.
        """
        return replace(self, settled=dict(values))

    def with_constants(self, values: Mapping[str, Array]) -> Graph:
        """The graph with other values for initializers that are also graph inputs. Raises ModelError for any other name."""
        constants, types = dict(self.constants), dict(self.types)
        protos = dict(self.type_protos)
        for name, value in values.items():
            if name not in self.overridable:
                raise ModelError("is not an initializer that the model lets you override", where=f"input {name!r}")
            wanted = numpy_dtype(constants[name].data_type)
            array = np.asarray(value)
            if wanted is not None and array.dtype != wanted:
                array = array.astype(wanted)
            constants[name] = numpy_helper.from_array(array, name)
            types[name] = TensorType(wanted, array.shape)
            protos[name] = onnx.helper.make_tensor_type_proto(elem_type(array.dtype), list(array.shape))
        fresh: weakref.WeakValueDictionary[str, Array] = weakref.WeakValueDictionary()
        return replace(self, constants=constants, types=types, type_protos=protos, _kept={}, _seen=fresh)


def graph_of(model: ModelProto, *, folder: Path | None = None, upcast_from: np.dtype[Any] | None = None) -> Graph:
    """Index a model. The model is not changed and must not be changed afterwards.

    folder: where its external data lies. Raises ModelError for cycles, missing producers and names made twice.
    """
    graph = model.graph
    constants, protos = _constants(graph)
    inputs = tuple(value.name for value in graph.input if value.name not in constants)
    overridable = tuple(value.name for value in graph.input if value.name in constants)
    if len(set(inputs)) != len(inputs):
        raise ModelError("two graph inputs have one name", where=f"input {next(n for n in inputs if inputs.count(n) > 1)!r}")
    maker = _makers(protos, {*inputs, *constants})
    captures = [captured(node) for node in protos]
    needs = [dict.fromkeys(n for n in (*node.input, *inner) if n) for node, inner in zip(protos, captures, strict=True)]
    _check_sources(protos, needs, graph.output, maker, {*inputs, *constants})
    nodes = tuple(_node(index, protos[at], captures[at]) for index, at in enumerate(topological(protos, needs, maker)))
    producer = {name: node.index for node in nodes for name in node.makes}
    consumers: dict[str, list[int]] = {}
    for node in nodes:
        for name in node.reads:
            consumers.setdefault(name, []).append(node.index)
    tensors = tuple(producer)
    types_of = type_protos(model)
    for name, tensor in constants.items():
        types_of[name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    known = {*tensors, *inputs, *constants}
    types_of = {name: proto for name, proto in types_of.items() if name in known}
    return Graph(
        nodes=nodes,
        inputs=inputs,
        outputs=tuple(value.name for value in graph.output),
        constants=constants,
        types={name: tensor_type(proto) for name, proto in types_of.items()},
        type_protos=types_of,
        producer=producer,
        consumers={name: tuple(users) for name, users in consumers.items()},
        tensors=tensors,
        order={name: position for position, name in enumerate(tensors)},
        opsets={_domain(opset.domain): opset.version for opset in model.opset_import},
        ir_version=model.ir_version,
        functions=tuple(model.functions),
        metadata={prop.key: prop.value for prop in model.metadata_props},
        overridable=overridable,
        upcast_from=upcast_from,
        folder=folder,
        name=graph.name or "graph",
    )


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _node(index: int, proto: onnx.NodeProto, inner: tuple[str, ...]) -> Node:
    domain = "" if proto.domain == ROUNDING_DOMAIN else _domain(proto.domain)
    op = proto.op_type.split("_")[0] if proto.domain == ROUNDING_DOMAIN else proto.op_type
    return Node(index, proto.name, op, domain, tuple(proto.input), tuple(proto.output), inner, proto)


def _constants(graph: onnx.GraphProto) -> tuple[dict[str, TensorProto], list[onnx.NodeProto]]:
    """All constants by name, and the nodes that are left."""
    constants: dict[str, TensorProto] = {}

    def add(name: str, tensor: TensorProto) -> None:
        before = constants.get(name)
        if before is not None and before.SerializeToString() != tensor.SerializeToString():
            raise ModelError("two constants have this name and differ", where=f"tensor {name!r}")
        constants[name] = tensor

    for tensor in graph.initializer:
        add(tensor.name, tensor)
    for sparse in graph.sparse_initializer:
        add(sparse.values.name, dense(sparse, sparse.values.name))
    nodes = []
    for node in graph.node:
        value = constant_of(node) if node.op_type == "Constant" and _domain(node.domain) == "" else None
        if value is None:
            nodes.append(node)
        elif value.name:
            add(value.name, value)
    return constants, nodes


def _makers(nodes: Sequence[onnx.NodeProto], taken: set[str]) -> dict[str, int]:
    maker: dict[str, int] = {}
    for at, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in maker or name in taken:
                raise ModelError(
                    f"is made twice, the second time by {spoken(node, at)}",
                    where=f"tensor {name!r}",
                    hint="tensor names must be unique in a graph",
                )
            maker[name] = at
    return maker


def _check_sources(
    nodes: Sequence[onnx.NodeProto],
    needs: Sequence[Iterable[str]],
    outputs: Iterable[onnx.ValueInfoProto],
    maker: Mapping[str, int],
    given: set[str],
) -> None:
    for at, names in enumerate(needs):
        for name in names:
            if name not in maker and name not in given:
                raise ModelError(
                    f"reads tensor {name!r}, which no node makes", where=spoken(nodes[at], at), hint="is the export complete?"
                )
    for value in outputs:
        if value.name not in maker and value.name not in given:
            raise ModelError("is made by no node", where=f"graph output {value.name!r}", hint="is the export complete?")


def external_constants(graph: Graph) -> tuple[str, ...]:
    """Constants whose values stand in a file beside the model."""
    return tuple(name for name, tensor in graph.constants.items() if is_external(tensor))
