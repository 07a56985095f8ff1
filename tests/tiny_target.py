"""A target in a few lines: it replays a model node by node, rounds what it makes, and goes wrong where it is told to.

What the tests of matching, judgement and session share. What follows a wrong value is computed from it, as on a chip.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from bisect_align.dumps.entry import Entry, Expect, Quant, Role
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.precision import round_to
from bisect_align.model.graph import Graph, graph_of

Array: TypeAlias = NDArray[Any]
Fault: TypeAlias = Callable[[Array], Array]


# ---- models ----------------------------------------------------------------------------------------------------------------
def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """One operator; names are separated by spaces, "-" is an absent optional. The node is called n_<first output>."""
    names = [[("" if n == "-" else n) for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, names[0], names[1], name=f"n_{next(n for n in names[1] if n)}", **attributes)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str] = (),
    weights: Mapping[str, Any] = {},
    *,
    opset: int = 21,
    kind: int = TensorProto.FLOAT,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """A model of these nodes; outputs default to what the last one makes. Weights keep their dtype."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs or nodes[-1].output if name],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in {f.domain for f in functions})]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def mixed(depth: int = 4, width: int = 24) -> onnx.ModelProto:
    """`depth` blocks of MatMul, Add (bias), Tanh, Mul (gate): m0, b0, t0, g0, m1, ... on x (8, width)."""
    nodes, weights, x = [], {}, "x"
    for k in range(depth):
        weights[f"w{k}"] = normal(k, width, width, scale=width**-0.5)
        weights[f"c{k}"], weights[f"s{k}"] = normal(100 + k, width, scale=0.3), 1 + normal(200 + k, width, scale=0.2)
        nodes += [
            node("MatMul", f"{x} w{k}", f"m{k}"),
            node("Add", f"m{k} c{k}", f"b{k}"),
            node("Tanh", f"b{k}", f"t{k}"),
            node("Mul", f"t{k} s{k}", f"g{k}"),
        ]
        x = f"g{k}"
    return model_of(nodes, {"x": (8, width)}, weights=weights)


def convolutional() -> onnx.ModelProto:
    """Two blocks of Conv, BatchNormalization, Relu: c0, n0, r0, c1, n1, r1, then the pooled mean `p`, on x (1, 3, 10, 8)."""
    nodes, weights, x, channels = [], {}, "x", 3
    for k, made in enumerate((6, 4)):
        weights[f"w{k}"], weights[f"v{k}"] = normal(k, made, channels, 3, 3, scale=0.3), normal(50 + k, made, scale=0.2)
        weights |= {f"scale{k}": 1 + normal(60 + k, made, scale=0.2), f"shift{k}": normal(70 + k, made, scale=0.3)}
        weights |= {f"mean{k}": normal(80 + k, made, scale=0.2), f"var{k}": 1 + normal(90 + k, made, scale=0.1) ** 2}
        nodes += [
            node("Conv", f"{x} w{k} v{k}", f"c{k}", pads=[1, 1, 1, 1]),
            node("BatchNormalization", f"c{k} scale{k} shift{k} mean{k} var{k}", f"n{k}"),
            node("Relu", f"n{k}", f"r{k}"),
        ]
        x, channels = f"r{k}", made
    nodes.append(node("GlobalAveragePool", x, "p"))
    return model_of(nodes, {"x": (1, 3, 10, 8)}, weights=weights)


# ---- the target ------------------------------------------------------------------------------------------------------------
def store(value: Array, precision: str, rng: np.random.Generator) -> Array:
    """A float tensor as a healthy target of this precision holds it; int8 on 255 steps of its own range."""
    if value.dtype != np.float32 or not value.size:
        return value
    if precision == "fp32":
        return np.asarray(value * (1 + rng.integers(-2, 3, value.shape) * 2.0**-23), np.float32)
    if precision == "fp16":
        with np.errstate(over="ignore"):
            return value.astype(np.float16).astype(np.float32)
    if precision == "bf16":
        return value.astype(ml_dtypes.bfloat16).astype(np.float32)
    low, high = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
    scale = np.float32((high - low) / 255 or 1)
    return np.asarray(np.rint(value / scale) * scale, np.float32)


WEIGHTS = {"fp16": "fp16", "bf16": "bf16", "int8": "int8 tensor"}


def run_target(
    model: onnx.ModelProto | Graph,
    inputs: Mapping[str, Array],
    precision: str = "exact",
    faults: Mapping[str, Fault] = {},
    *,
    seed: int = 0,
) -> dict[str, Array]:
    """Every tensor as the target makes it, inputs included. precision: exact, fp32, fp16, bf16 or int8 (weights rounded too,
    where a matrix; int8 biases are not). faults: tensor -> what comes out in the place of the right value."""
    graph = graph_of(model) if isinstance(model, onnx.ModelProto) else model
    rng = np.random.default_rng(seed)
    constants = {n: graph.constant(n) for n in graph.constants} if precision in WEIGHTS else {}
    rounded = {n: round_to(w, WEIGHTS[precision]) for n, w in constants.items() if w.dtype == np.float32 and w.ndim > 1}
    found: dict[str, Array] = dict(inputs)

    def hook(name: str, value: Array | Unavailable) -> Array | None:
        if isinstance(value, Unavailable):
            return None
        kept = value if precision == "exact" else store(value, precision, rng)
        if name in faults:
            kept = np.asarray(faults[name](kept.copy()), value.dtype)
        found[name] = kept
        return kept

    SegmentEngine(graph).local({**inputs, **rounded}, hook)
    return found


# ---- faults ----------------------------------------------------------------------------------------------------------------
def scaled(factor: float) -> Fault:
    return lambda y: y * np.float32(factor)


def offset(sigmas: float) -> Fault:
    return lambda y: y + np.float32(sigmas * y.std())


def one_element(sigmas: float) -> Fault:
    def fault(y: Array) -> Array:
        y.flat[y.size // 3] += sigmas * y.std()
        return y

    return fault


def channel(axis: int, factor: float = 0.0) -> Fault:
    """The strongest slice along an axis is multiplied."""

    def fault(y: Array) -> Array:
        rest = tuple(i for i in range(y.ndim) if i != axis)
        strongest = int(np.abs(y).sum(axis=rest).argmax())
        np.moveaxis(y, axis, 0)[strongest] *= factor
        return y

    return fault


def border(factor: float = 0.7) -> Fault:
    def fault(y: Array) -> Array:
        y[..., -1] *= factor
        return y

    return fault


# ---- dumps and benches -----------------------------------------------------------------------------------------------------
def entry(
    name: str,
    values: Array,
    *,
    key: str = "",
    quant: Quant | None = None,
    role: Role = Role.TARGET,
    loads: list[str] | None = None,
) -> Entry:
    """An entry in memory; `loads` takes its key each time that it is read."""
    key = key or name

    def reader(expect: Expect | None) -> Array:
        if loads is not None:
            loads.append(key)
        return values

    return Entry(
        key=key,
        names=(name,),
        source=Path(key),
        format="test",
        nbytes=values.nbytes,
        dtype=values.dtype,
        shape=values.shape,
        role=role,
        quant=quant,
        reader=reader,
    )


class Values:
    """Observed values by name, as a judge sees them."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values = dict(values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def value(self, name: str) -> Array:
        return self._values[name]


def bench_of(model: onnx.ModelProto | Graph, inputs: Mapping[str, Array]) -> Bench:
    """A bench whose golden is computed once."""
    graph = graph_of(model) if isinstance(model, onnx.ModelProto) else model
    engine = SegmentEngine(graph)
    golden = dict(engine.stream(inputs, (*graph.inputs, *graph.tensors)))

    def ranges(name: str) -> tuple[float, float]:
        value = golden[name]
        if isinstance(value, Unavailable) or value.dtype.kind != "f":
            return 0.0, 0.0
        finite = value[np.isfinite(value)]
        return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)

    def of(name: str) -> Array | None:
        value = golden[name]
        return None if isinstance(value, Unavailable) else value

    return Bench(graph, engine, ranges, of, "tiny")


def write_model(folder: Path, model: onnx.ModelProto) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def write_dump(path: Path, values: Mapping[str, Array], only: Collection[str] | None = None) -> Path:
    """One .npz with the tensors' own names."""
    kept = {name: value for name, value in values.items() if only is None or name in only}
    with path.open("wb") as file:
        np.savez(file, **kept)  # type: ignore[arg-type]
    return path
