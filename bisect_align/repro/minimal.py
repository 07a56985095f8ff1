"""The element-minimal case of a culprit: one wrong element, and as little around it as computes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bisect_align.golden.protocol import Array
from bisect_align.metrics.measure import measure
from bisect_align.repro.alone import judge
from bisect_align.repro.content import Content, Expected, Given
from bisect_align.repro.crop import Small, stated
from bisect_align.repro.shrink import shrink


def minimal(made: Content) -> Content | None:
    """The case cut down to its worst element; None where it has none (the shapes differ), or nothing can be left out."""
    expected = made.outputs[0]
    target = expected.target
    if target is None or target.shape != expected.golden.shape or len(made.outputs) > 1:
        return None
    at = measure(expected.golden, target).worst
    if at is None:
        return None
    start = Small(made.golden_model, {g.name: g.values for g in made.inputs}, at)
    found = shrink(start)
    if found is None or found.small.size >= start.size:
        return None
    small, golden = found.small, found.golden
    model = made.golden_model if made.upcast is None else made.model
    for crop in small.crops:
        model = crop.model(model)
    model = stated(model, small.inputs, golden)
    upcast = None if made.upcast is None else stated(small.model, small.inputs, golden)
    inputs = tuple(_cropped(g, small.inputs[g.name]) for g in made.inputs)
    outputs = (_element(expected, target, at, golden, small.at),)
    notes = (*made.notes, _sizes(made, inputs, expected, golden), _trust(found.exact, at, small.at))
    return replace(made, model=model, upcast=upcast, inputs=inputs, outputs=outputs, notes=notes)


def _cropped(given: Given, values: Array) -> Given:
    whole = values.shape == given.values.shape
    return replace(given, values=values, source=given.source if whole else f"{given.source}, a part of {_by(given.values.shape)}")


def _element(expected: Expected, target: Array, at: tuple[int, ...], golden: Array, place: tuple[int, ...]) -> Expected:
    """The expectation of the one element; the rest of the small output says nothing about the target."""
    there = tuple(slice(i, i + 1) for i in at)
    value, sigma = np.ascontiguousarray(target[there]), np.ascontiguousarray(expected.sigma[there])
    rule = {**expected.rule, "by": "noise"}
    found = judge(expected.golden[there], value, sigma, rule)
    if not found["differs"]:
        rule |= {"by": "error", "error": found["error"]}
    return Expected(expected.name, golden, value, sigma, rule, place)


def _sizes(made: Content, inputs: tuple[Given, ...], expected: Expected, golden: Array) -> str:
    pairs = [(g.values.shape, small.values.shape) for g, small in zip(made.inputs, inputs, strict=True)]
    before, after = (sum(int(np.prod(p[k], dtype=np.int64)) for p in pairs) for k in (0, 1))
    shapes = ", ".join(f"{_by(a)} -> {_by(b)}" for a, b in (*pairs, (expected.golden.shape, golden.shape)))
    return f"Cut down to one wrong element: {shapes}; {before} elements of input became {after}."


def _trust(exact: bool, at: tuple[int, ...], place: tuple[int, ...]) -> str:
    bits = (
        "bit for bit what it was in the whole" if exact else "within 2^-20 of what it was in the whole (a sum of another length)"
    )
    return (
        f"The element {list(at)} of the whole output is {list(place)} here; its golden is {bits}. The target's value is the dumped "
        "one: where the fault depends on the size or the tiling, this case shows the value, not the path, and may come out right."
    )


def _by(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"
