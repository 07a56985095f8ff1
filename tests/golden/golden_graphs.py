"""Small models for the tests of the golden engine, and the whole-model session that its bits are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.sessions import session_options
from bisect_align.model.graph import Graph, graph_of

Array = NDArray[Any]
NETS = Path(__file__).parents[2] / "models" / "nets"
ROWS, WIDTH = 5, 8


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, int | onnx.TypeProto] = {"x": TensorProto.FLOAT},
    outputs: Sequence[str] = (),
    constants: Mapping[str, Array] = {},
    opset: int = 21,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of these nodes; inputs by element type (no shape stated) or type; outputs default to those of the last node."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_value_info(name, kind)
            if isinstance(kind, onnx.TypeProto)
            else helper.make_tensor_value_info(name, kind, None)
            for name, kind in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs or nodes[-1].output if name],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def make(*args: Any, **kwargs: Any) -> Graph:
    """The graph of `model_of`."""
    return graph_of(model_of(*args, **kwargs))


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def exposed(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the model from one session in which all of them are outputs: the classic, hungry way."""
    graph = graph_of(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in graph.tensors)
    for at, split in enumerate(copy.graph.node):
        for place, name in enumerate(split.output):  # ONNX Runtime crashes where a Split lacks an output
            split.output[place] = name or f"absent{at}"
    session = ort.InferenceSession(copy.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
    return dict(zip(graph.tensors, session.run(list(graph.tensors), dict(feeds)), strict=True))


def same(left: object, right: object) -> bool:
    """Equal dtype, shape and bits; or one reason."""
    if isinstance(left, Unavailable) or isinstance(right, Unavailable):
        return left == right
    assert isinstance(left, np.ndarray)
    assert isinstance(right, np.ndarray)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


def random_model(seed: int, size: int = 14) -> onnx.ModelProto:
    """A random DAG over tensors of shape [ROWS, WIDTH]: prepacked weights, reductions, branches, bodies, shape arithmetic."""
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {
        "axis": np.array([1]),
        "flat": np.array([-1]),
        "scale": rng.standard_normal(WIDTH).astype(np.float32),
        "yes": np.array(True),
    }
    wide = ["x"]

    def any_wide() -> str:
        return wide[int(rng.integers(len(wide)))]

    for k in range(size):
        out = f"t{k}"
        kind = int(rng.integers(9))
        if kind == 0:
            nodes.append(node(str(rng.choice(["Relu", "Sigmoid", "Tanh", "Erf", "Softplus"])), [any_wide()], [out]))
        elif kind == 1:
            nodes.append(node(str(rng.choice(["Add", "Mul", "Sub", "Max"])), [any_wide(), any_wide()], [out]))
        elif kind == 2:
            constants[f"w{k}"] = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
            nodes.append(node("MatMul", [any_wide(), f"w{k}"], [out]))
        elif kind == 3:
            constants[f"w{k}"] = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
            nodes.append(node("Gemm", [any_wide(), f"w{k}", "scale"], [out], transB=1))
        elif kind == 4:
            source = any_wide()
            nodes.append(node("ReduceMean", [source, "axis"], [f"{out}_mean"], keepdims=1))
            nodes.append(node("Sub", [source, f"{out}_mean"], [out]))
        elif kind == 5:
            nodes.append(node("LayerNormalization", [any_wide(), "scale"], [out]))
        elif kind == 6:
            nodes.append(node("Split", [any_wide()], [f"{out}_a", "", f"{out}_c", f"{out}_d"], axis=1, num_outputs=4))
            nodes.append(node("Concat", [f"{out}_c", f"{out}_a", f"{out}_d", f"{out}_a"], [out], axis=1))
        elif kind == 7:
            source = any_wide()
            nodes.append(node("Shape", [source], [f"{out}_shape"]))
            nodes.append(node("Reshape", [source, "flat"], [f"{out}_flat"]))
            nodes.append(node("Reshape", [f"{out}_flat", f"{out}_shape"], [out]))
        else:
            first, second = any_wide(), any_wide()
            bodies = [
                helper.make_graph([node(op, [first, second], [f"{out}_{op}"])], op, [], [onnx.ValueInfoProto(name=f"{out}_{op}")])
                for op in ("Add", "Mul")
            ]
            nodes.append(node("Constant", [], [f"{out}_half"], value=numpy_helper.from_array(np.asarray(0.5, np.float32))))
            nodes.append(node("If", ["yes"], [f"{out}_if"], then_branch=bodies[0], else_branch=bodies[1]))
            nodes.append(node("Mul", [f"{out}_if", f"{out}_half"], [out]))
        wide.append(out)
    return model_of(nodes, constants=constants)


def random_feeds(seed: int) -> dict[str, Array]:
    return {"x": np.random.default_rng([seed, 1]).standard_normal((ROWS, WIDTH)).astype(np.float32)}
