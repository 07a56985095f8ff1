#!/usr/bin/env python3
"""What changes the last bits of ONNX Runtime with optimisations off: the measurements of docs/notes/engine.md.

    python scripts/engine_bits.py

For each model under models/: tensors whose bits change with two threads, without prepacked weights, in a second run; tensors where
one session a node (the golden) differs from one session for all. Models are run as they are: one in float16 is not up-cast here.
Then single operators on random values: ReduceSum by where its buffer starts, MatMul by whether its weights are an initializer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from bisect_align.errors import BisectAlignError
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.graph import graph_of

Array = np.ndarray[Any, Any]
MODELS = Path(__file__).resolve().parent.parent / "models"


def session(model: onnx.ModelProto, threads: int = 1, **config: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def models() -> list[tuple[str, Path, Path]]:
    """Name, model and inputs of every distinct model with inputs of its own kind."""
    found: dict[Path, tuple[str, Path, Path]] = {}
    for file in sorted(MODELS.rglob("case.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        if told.get("inputs") and not told.get("quantised_model"):
            model, inputs = (file.parent / told[key] for key in ("model", "inputs"))
            found.setdefault(model.resolve(), (told["name"], model, inputs))
    return list(found.values())


def different(first: list[Array], second: list[Array]) -> int:
    return sum(a.tobytes() != b.tobytes() for a, b in zip(first, second, strict=True))


def whole_models() -> None:
    print(f"{'model':46s} tensors  threads  no prepacking  second run  one session a node")
    for name, path, inputs in models():
        model = onnx.load(path)
        graph = graph_of(model)
        feeds = {k: v for k, v in np.load(inputs).items() if k in graph.inputs}
        had = {output.name for output in model.graph.output}
        names = [t for t in graph.tensors if not graph.is_constant(t)]
        model.graph.output.extend(onnx.ValueInfoProto(name=t) for t in names if t not in had)
        try:
            one, other, plain = session(model), session(model, threads=2), session(model, disable_prepacking="1")
            base = one.run(names, feeds)
            golden = dict(SegmentEngine(graph).stream(feeds, names))
        except (BisectAlignError, RuntimeError, ValueError) as trouble:
            print(f"{name:46s} {str(trouble)[:60]}")
            continue
        pairs = zip(map(golden.get, names), base, strict=True)
        apart = sum(not isinstance(g, np.ndarray) or g.tobytes() != b.tobytes() for g, b in pairs)
        figures = [different(base, s.run(names, feeds)) for s in (other, plain, one)]
        print(f"{name:46s} {len(names):7d}  {figures[0]:7d}  {figures[1]:13d}  {figures[2]:10d}  {apart:18d}")


def single(op: str, inputs: dict[str, Array], constants: dict[str, Array], **attributes: Any) -> onnx.ModelProto:
    shapes = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in inputs.items()]
    node = helper.make_node(op, [*inputs, *constants], ["y"], **attributes)
    held = [numpy_helper.from_array(v, k) for k, v in constants.items()]
    graph = helper.make_graph([node], "one", shapes, [onnx.ValueInfoProto(name="y")], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def count(tries: int, differs: Callable[[np.random.Generator], bool]) -> str:
    return f"{sum(differs(np.random.default_rng(seed)) for seed in range(tries))} of {tries}"


def shifted_sum(rng: np.random.Generator) -> bool:
    x = rng.standard_normal(1001).astype(np.float32)
    runner = session(single("ReduceSum", {"x": x}, {}, keepdims=0))
    room = np.empty(x.nbytes + 128, np.uint8)
    start, sums = -room.ctypes.data % 64, set()
    for offset in (0, 4, 8, 16, 32):
        copy = room[start + offset : start + offset + x.nbytes].view(np.float32)
        copy[...] = x
        sums.add(runner.run(None, {"x": copy})[0].tobytes())
    return len(sums) > 1


def fed_weight(rng: np.random.Generator) -> bool:
    m, k, n = (int(v) for v in rng.integers(1, 300, 3))
    x, w = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    inside, outside = session(single("MatMul", {"x": x}, {"w": w})), session(single("MatMul", {"x": x, "w": w}, {}))
    return different(inside.run(None, {"x": x}), outside.run(None, {"x": x, "w": w})) > 0


if __name__ == "__main__":
    ort.set_default_logger_severity(4)
    whole_models()
    print("ReduceSum, other bits by where the buffer starts:", count(50, shifted_sum))
    print("MatMul, other bits where the weights are fed:", count(50, fed_weight))
