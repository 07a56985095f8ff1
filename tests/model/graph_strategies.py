"""Random models for property tests: DAGs of cheap float operators, some of them with bodies or several outputs."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper


def value(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int | str, ...] | None = (4,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    initializers: list[TensorProto] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    functions: list[onnx.FunctionProto] | None = None,
    domains: tuple[str, ...] = (),
) -> ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers or [])
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=functions or [])


def branch(name: str, read: str, op: str) -> onnx.GraphProto:
    """A body without inputs that reads an outer tensor."""
    return helper.make_graph([helper.make_node(op, [read], [name])], name, [], [value(name, shape=None)])


@st.composite
def dags(draw: st.DrawFn, most: int = 14) -> ModelProto:
    """Nodes in random file order; every tensor that nobody reads is an output, and some others are too."""
    count = draw(st.integers(1, most))
    known = ["x0", "x1", "w"]
    nodes: list[NodeProto] = []

    def pick() -> str:
        return draw(st.sampled_from(known))

    for at in range(count):
        kind = draw(st.sampled_from(["one", "two", "split", "if", "constant"]))
        name = draw(st.sampled_from(["", "same", f"n{at}"]))
        made = [f"t{at}"]
        if kind == "one":
            nodes.append(helper.make_node(draw(st.sampled_from(["Neg", "Relu", "Tanh"])), [pick()], made, name=name))
        elif kind == "two":
            nodes.append(helper.make_node(draw(st.sampled_from(["Add", "Mul", "Max"])), [pick(), pick()], made, name=name))
        elif kind == "split":
            made = [f"t{at}", f"t{at}_b"]
            nodes.append(helper.make_node("TopK", [pick(), "k"], [made[0], f"t{at}_i"], name=name, axis=0))
            nodes.append(helper.make_node("Cast", [f"t{at}_i"], [made[1]], to=TensorProto.FLOAT))
        elif kind == "if":
            bodies = {"then_branch": branch(f"b{at}", pick(), "Neg"), "else_branch": branch(f"c{at}", pick(), "Abs")}
            nodes.append(helper.make_node("If", ["cond"], made, name=name, **bodies))
        else:
            tensor = numpy_helper.from_array(np.full(4, at, np.float32))
            nodes.append(helper.make_node("Constant", [], made, value=tensor))
        known.extend(made)
    made_here = [name for node in nodes for name in node.output]
    extra = draw(st.sets(st.sampled_from(made_here), max_size=3))
    read = {name for node in nodes for name in (*node.input, *_captured(node))}
    integers = {name for name in made_here if name.endswith("_i")}
    names = [name for name in made_here if (name not in read or name in extra)]
    outputs = [value(name, TensorProto.INT64 if name in integers else TensorProto.FLOAT) for name in names]
    shuffled = draw(st.permutations(nodes))
    weights = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"),
        numpy_helper.from_array(np.array([4]), "k"),
        numpy_helper.from_array(np.array(True), "cond"),
    ]
    return model(list(shuffled), [value("x0"), value("x1")], outputs, weights)


def _captured(node: NodeProto) -> list[str]:
    return [name for attribute in node.attribute for inner in attribute.g.node for name in inner.input]
