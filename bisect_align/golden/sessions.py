"""One node as an ONNX Runtime session, and a cache of such sessions that is bounded in bytes."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import onnxruntime as ort

from bisect_align.errors import EngineError, ModelError, one_line
from bisect_align.golden.randomness import Chance, chance_of
from bisect_align.golden.values import Carried, carry, dtype_of, is_odd, received, to_ort, type_proto
from bisect_align.model.dtypes import is_packed
from bisect_align.model.graph import Graph, Node
from bisect_align.model.segment import segment

# Larger weights are handed to ONNX Runtime beside the model instead of being copied into it: 5 times faster for 64 MB, and
# the only way above protobuf's 2 GB. Small ones must be inside, since shape inference reads them.
_BY_REFERENCE = 1 << 16

# What a session of a tiny model was measured to occupy beside its weights.
_OVERHEAD = 1 << 15

_NOISE = (
    re.compile(r"^\s*\[ONNXRuntimeError\] : \d+ : \w+ : "),
    re.compile(r"^Load model (from \S+ )?failed:\s*"),
    re.compile(r"^Exception during initialization: "),
    re.compile(r"^Non-zero status code returned while running .*? Status Message: "),
    # Source file, line and C++ function of the place that complains.
    re.compile(r"\S+\.(?:cc|cpp|h|hpp):\d+ (?:[^()]*\w::[^()]*\([^()]*\)(?:::<lambda\(.*?\)>)?(?: const)? ?|\w+ )"),
    re.compile(r"^Fatal error: "),
)

_HINTS = (
    ("is not a registered function/op", "a custom operator: the golden needs operators that ONNX Runtime knows"),
    ("No Op registered", "the standard has no such operator: a misspelt name, a missing domain, or another opset"),
    ("Could not find an implementation", "ONNX Runtime's CPU provider has no kernel for this operator, opset or type"),
    ("Current official support", "convert the model to an older opset, or use a newer onnxruntime"),
    ("is under development", "convert the model to an older opset, or use a newer onnxruntime"),
    ("Unsupported model IR version", "save the model with an older IR version, or use a newer onnxruntime"),
)

Key: TypeAlias = tuple[int, tuple[tuple[str, str], ...]]


def plain_words(error: BaseException) -> str:
    """ONNX Runtime's message as one short line, without codes, source paths and C++ signatures."""
    text = one_line(error)
    before = None
    while text != before:
        before = text
        for noise in _NOISE:
            text = noise.sub("", text).strip()
    text = text or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def spoken(node: Node) -> str:
    """How messages name a node."""
    return f"node {node.label!r} ({node.domain + '.' if node.domain else ''}{node.op})"


class NodeSession:
    """One node, ready to run: optimisations off, one thread, so that the same feeds always give the same bits.

    types: ONNX Runtime's spelling of the type of each tensor that is fed; every other tensor that the node reads must be a
    constant and becomes an initializer (as session inputs, MatMul, Gemm and GRU weights would not be prepacked, and lose bits).
    Raises EngineError where ONNX Runtime refuses the node, ModelError where one of its weights is damaged.
    """

    def __init__(self, graph: Graph, node: Node, types: Mapping[str, str]) -> None:
        self._names = list(node.makes)
        self._weights: list[Carried] = []
        try:
            self._session, self.nbytes = self._open(graph, node, types)
        except ModelError:  # a weight that cannot be read: not ONNX Runtime's words
            raise
        except Exception as error:  # ONNX Runtime raises a dozen classes, protobuf its own, all of them only Exceptions
            text = plain_words(error)
            hint = next((hint for sign, hint in _HINTS if sign in text), "")
            raise EngineError(f"ONNX Runtime {ort.__version__} refuses it: {text}", where=spoken(node), hint=hint) from None
        self._types = {output.name: output.type for output in self._session.get_outputs()}
        self._odd = any(is_odd(self._types[name]) for name in self._names)

    def _open(self, graph: Graph, node: Node, types: Mapping[str, str]) -> tuple[ort.InferenceSession, int]:
        # Strings, sequences and so on have no dtype; the placeholder is replaced just below.
        feeds = {name: dtype_of(type_name) or np.dtype(object) for name, type_name in types.items()}
        model = segment(graph, [node.index], feeds, self._names, by_reference=_BY_REFERENCE)
        for value in model.graph.input:
            value.type.CopyFrom(type_proto(types[value.name]))
        options = session_options()
        apart = []
        for tensor in model.graph.initializer:
            if tensor.external_data and is_packed(tensor.data_type):
                # Buffers of packed values are made by ONNX Runtime, and it takes only ours by reference.
                tensor.CopyFrom(graph.initializer(tensor.name))
            elif tensor.external_data:
                apart.append(tensor.name)
        if apart:
            self._weights = [carry(graph.constant(name)) for name in apart]
            options.add_external_initializers(apart, [to_ort(weight) for weight in self._weights])
        proto = model.SerializeToString()
        session = ort.InferenceSession(proto, options, providers=["CPUExecutionProvider"])
        return session, _OVERHEAD + len(proto) + sum(weight.nbytes for weight in self._weights)

    def run(self, feeds: Mapping[str, Carried]) -> dict[str, Carried]:
        """The node's outputs. Raises whatever ONNX Runtime raises where the node cannot run on these feeds."""
        outputs: Any
        if self._odd:
            given = {name: to_ort(value) for name, value in feeds.items()}
            outputs = self._session.run_with_ort_values(self._names, given)
        else:
            outputs = self._session.run(self._names, {name: value.data for name, value in feeds.items()})
        made = zip(self._names, outputs, strict=True)
        return {name: received(data, self._types[name]) for name, data in made}


def session_options() -> ort.SessionOptions:
    """The settings of every golden: what is asked for may never change a bit.

    Threads and optimisations change sums; weights stay prepacked, which also decides the bits of a MatMul. An arena or a
    memory pattern would keep every session's high-water mark for as long as the session is cached.
    """
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 4
    return options


class Sessions:
    """The sessions of a graph's nodes, least recently used first to go.

    budget: bytes that cached sessions and live values may take together; a session that does not fit is used once.
    """

    def __init__(self, graph: Graph, budget: int) -> None:
        self.graph = graph
        self._budget = budget
        self._cached: OrderedDict[Key, NodeSession] = OrderedDict()
        self._nbytes = 0
        self._chances: dict[int, Chance] = {}

    def chance(self, node: Node) -> Chance:
        """What the node draws at random."""
        known = self._chances.get(node.index)
        if known is None:
            known = self._chances[node.index] = chance_of(node, self.graph)
        return known

    def of(self, node: Node, feeds: Mapping[str, Carried], live: int) -> NodeSession:
        """A session that takes these feeds, while live bytes are taken by values. Raises EngineError."""
        types = {name: value.type for name, value in feeds.items()}
        if self.chance(node) is Chance.SEEDED:
            # A generator starts from its seed once a session.
            return NodeSession(self.graph, node, types)
        key = (node.index, tuple(types.items()))
        session = self._cached.get(key)
        if session is None:
            session = NodeSession(self.graph, node, types)
            self._shrink(self._budget - live - session.nbytes)
            if session.nbytes + live <= self._budget:
                self._cached[key] = session
                self._nbytes += session.nbytes
        else:
            self._cached.move_to_end(key)
            self._shrink(self._budget - live)
        return session

    def _shrink(self, limit: int) -> None:
        while self._nbytes > limit and self._cached:
            _, oldest = self._cached.popitem(last=False)
            self._nbytes -= oldest.nbytes
