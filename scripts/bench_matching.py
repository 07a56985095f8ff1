#!/usr/bin/env python3
"""What matching costs at scale: 5,000 tensors against 5,000 entries, by name and without names.

    python scripts/bench_matching.py [--tensors 5000] [--elements 256]

Prints CPU seconds of each step and its ratio to one golden pass over the same model, all from one run; the machine's speed drops out
of the ratios.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bisect_align.dumps.entry import Entry, Expect
from bisect_align.golden.segments import SegmentEngine
from bisect_align.matching.byvalue import ByValue, pool_of
from bisect_align.matching.claims import claim
from bisect_align.matching.fit import Votes
from bisect_align.matching.match import match
from bisect_align.matching.matcher import Matcher
from bisect_align.model.graph import Graph, graph_of


def chain(count: int, elements: int) -> Graph:
    """Add and Mul by turns, so that every tensor has another value."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for k in range(count):
        values = rng.normal(0, 0.1, elements) if k % 2 else rng.uniform(0.9, 1.1, elements)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"c{k}"))
        inputs = [f"/block.{k - 1}/out_0" if k else "x", f"c{k}"]
        nodes.append(helper.make_node("Add" if k % 2 else "Mul", inputs, [f"/block.{k}/out_0"], f"/block.{k}"))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, elements])
    y = helper.make_tensor_value_info(f"/block.{count - 1}/out_0", TensorProto.FLOAT, [1, elements])
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    return graph_of(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def entry(key: str, order: int, values: np.ndarray) -> Entry:
    def reader(_expect: Expect | None) -> np.ndarray:
        return values

    return Entry(key, (key,), Path(key), "bench", values.nbytes, values.dtype, values.shape, order=order, reader=reader)


@contextmanager
def timed(name: str, figures: dict[str, float]) -> Iterator[None]:
    start = time.process_time()
    yield
    figures[name] = time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensors", type=int, default=5000)
    parser.add_argument("--elements", type=int, default=256)
    asked = parser.parse_args()
    graph = chain(asked.tensors, asked.elements)
    inputs = {"x": np.random.default_rng(1).normal(size=(1, asked.elements)).astype(np.float32)}
    engine = SegmentEngine(graph)
    golden = dict(engine.stream(inputs, graph.tensors))
    values = {name: np.array(value) for name, value in golden.items() if isinstance(value, np.ndarray)}
    named = [entry(name.replace("/", "_"), k, v) for k, (name, v) in enumerate(values.items())]
    nameless = [entry(f"{k:06d}", k, v) for k, v in enumerate(values.values())]
    figures: dict[str, float] = {}
    with timed("one golden pass", figures):
        for _ in engine.stream(inputs, graph.tensors):
            pass
    with timed("claims, sanitised names", figures):
        claims = claim(named, graph)
    with timed("claims, no names", figures):
        none = claim(nameless, graph)
    with timed("fingerprints", figures):
        pool = pool_of(nameless)
    matcher = Matcher(graph, engine, inputs, nameless, none)
    matcher.settle()
    by_value = ByValue(graph, engine, inputs, pool, Votes())
    with timed("pruning", figures):
        by_value.candidates(matcher.prints)
    with timed("matched whole, by name", figures):
        found = match(Matcher(graph, engine, inputs, named, claims))
    with timed("matched whole, by value", figures):
        found_by_value = match(Matcher(graph, engine, inputs, nameless, none))
    unit = figures["one golden pass"]
    print(f"onnx {onnx.__version__}, {asked.tensors} tensors x {len(named)} entries of {asked.elements} elements")
    for name, seconds in figures.items():
        print(f"{name:26s} {seconds:7.2f} s CPU  {seconds / unit:6.2f} x one golden pass")
    print(f"placed by name {len(found.placed)}, by value {len(found_by_value.placed)} of {asked.tensors}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
