"""A model as a list of nodes, each run alone by ONNX Runtime: what the fake chip computes with, and its exact reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

Array: TypeAlias = NDArray[Any]

# Slots of float inputs that say what to do and are no data: no chip rounds them.
_SETTINGS = {
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "QuantizeLinear": (1,),
    "DequantizeLinear": (1,),
    "Range": (0, 1, 2),
    "Dropout": (1,),
    "NonMaxSuppression": (3, 4),
}


class Net:
    """Nodes with a session each (no optimisation, one thread, made when first run). Float32 constants that a node reads directly
    are inputs of its session, so that every chip shares it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.model = model
        self.opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
        self.constants: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            else:
                self.nodes.append(node)
        self.inputs = tuple(i.name for i in graph.input if i.name not in self.constants)
        self.outputs = tuple(o.name for o in graph.output)
        self.tensors = tuple(name for node in self.nodes for name in node.output if name)
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.reads = {id(node): tuple(dict.fromkeys(_reads(node))) for node in self.nodes}
        self.data = frozenset(name for node in self.nodes for name in _data_constants(node, self.constants))
        self._sessions: dict[Any, onnxruntime.InferenceSession] = {}

    def run(self, node: onnx.NodeProto, values: Mapping[str, Array], *, cached: bool = True) -> list[Array]:
        """Outputs of a node on the values given; constants that are not among them are the model's own.

        Raises onnxruntime's exceptions where the node cannot be run on these values.
        """
        reads = self.reads[id(node)] if cached else tuple(dict.fromkeys(_reads(node)))
        feeds = {name: values.get(name, self.constants.get(name)) for name in reads if self._fed(name)}
        key = (id(node), tuple(str(v.dtype) for v in feeds.values()))
        session = self._sessions.get(key) if cached else None
        if session is None:
            session = self._session(node, reads, feeds)
            if cached:
                self._sessions[key] = session
        return list(session.run(None, feeds))

    def exact(self, tensor: str, values: Mapping[str, Array]) -> Array:
        """The float32 value of a node output on the values given, with the model's own weights."""
        node = self.producer[tensor]
        made = self.run(node, {name: v for name, v in values.items() if name not in self.constants})
        return made[[name for name in node.output if name].index(tensor)]

    def golden(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every node output, node by node, as exact as float32 is."""
        values = dict(inputs)
        for node in self.nodes:
            values.update(zip((name for name in node.output if name), self.run(node, values), strict=True))
        return {name: values[name] for name in self.tensors}

    def _fed(self, name: str) -> bool:
        return name not in self.constants or name in self.data

    def _session(self, node: onnx.NodeProto, reads: tuple[str, ...], feeds: Mapping[str, Array]) -> onnxruntime.InferenceSession:
        inputs = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
            for name, value in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        used = [numpy_helper.from_array(self.constants[name], name) for name in reads if not self._fed(name)]
        graph = onnx.helper.make_graph([node], "node", inputs, outputs, used)
        model = onnx.helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        model.functions.extend(self.model.functions)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _data_constants(node: onnx.NodeProto, constants: Mapping[str, Array]) -> list[str]:
    if node.domain not in ("", "ai.onnx"):
        return []
    settings = _SETTINGS.get(node.op_type, ())
    direct = (name for slot, name in enumerate(node.input) if slot not in settings)
    return [name for name in direct if name in constants and constants[name].dtype == np.float32]


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those captured by its bodies too."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {i.name for i in body.input} | {t.name for t in body.initializer}
            for inner in body.node:
                names += [name for name in _reads(inner) if name not in own]
                own |= set(inner.output)
            names += [o.name for o in body.output if o.name not in own]
    return names
