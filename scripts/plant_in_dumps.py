#!/usr/bin/env python3
"""Plant faults in real healthy dumps and see whether they are found where they are.

    python scripts/plant_in_dumps.py [CORPUS] [--faults 20] [--only WORD] [--file-only] [--seed 0]

For each healthy case under CORPUS (default: models/healthy) faults are planted at random matched tensors: scaled by 1.1, shifted by
one, strongest channel zeroed, one NaN. A fault propagates: whatever is computed from it is computed again from the wrong value, plus
what the healthy target itself had introduced there (a tensor on an int8 grid: rounded to its levels and clipped to its range, since
what a calibrated range cut off in the healthy run says nothing of other values). With --file-only one entry changes and nothing
follows from it.

right     fault, and the first culprit's region holds the planted node (file only: dump-suspect, or nobody accused)
undecided no accusation, and no "aligned" either
missed    aligned
wrong     somebody healthy is accused first
Only faults that change the tensor by at least 8 times what the healthy target introduced there count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from case_json import options_of

from bisect_align.dumps.entry import Entry, Role
from bisect_align.errors import BisectAlignError
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.precision import grid_step
from bisect_align.matching.fit import residual
from bisect_align.matching.layout import fixes
from bisect_align.matching.match import match
from bisect_align.matching.matcher import Matcher
from bisect_align.matching.observations import Observation, Observations
from bisect_align.model.dtypes import is_float
from bisect_align.model.operators import QUANTISING
from bisect_align.model.region import region
from bisect_align.result.result import Verdict
from bisect_align.session.case import Case, prepare
from bisect_align.session.compose import compose
from bisect_align.session.hunt import Hunt
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT

Array = np.ndarray[Any, Any]
EFFECT = 8.0
SMALLEST = 16  # elements of a tensor that a fault is planted in
KINDS = ("scale", "shift", "channel", "nan")


def plant(kind: str, values: Array) -> Array:
    """The faulty values."""
    x = values.astype(np.float32).copy()
    if kind == "scale":
        return x * np.float32(1.1)
    if kind == "shift":
        return np.roll(x, 1, axis=-1 if x.shape[-1] > 1 else int(np.argmax(x.shape)))
    if kind == "channel":
        axis = 1 if x.ndim > 2 and x.shape[1] > 1 else int(np.argmax(x.shape))
        strongest = int(np.argmax(np.square(np.moveaxis(x, axis, 0)).reshape(x.shape[axis], -1).sum(1)))
        np.moveaxis(x, axis, 0)[strongest] = 0
        return x
    x.reshape(-1)[x.size // 2] = np.nan
    return x


@dataclass(frozen=True)
class Ground:
    """A healthy dump with its match: what faults are planted in."""

    name: str
    options: Options
    case: Case
    placed: dict[str, Observation]
    values: dict[str, Array]
    introduced: dict[str, Array]
    twins: dict[str, str]


def ground(name: str, options: Options) -> Ground:
    case = prepare(options)
    graph = case.model.graph
    matcher = Matcher(graph, case.engine, case.inputs.values, case.catalogue.entries, case.claims)
    matched = match(matcher)
    placed = dict(matched.placed)
    values = {t: np.array(matcher.observations.value(t)) for t in placed}
    introduced = {}
    for tensor in placed:
        predicted = replayed(case, tensor, placed, values)
        if predicted is not None and predicted.shape == values[tensor].shape and is_float(predicted.dtype):
            introduced[tensor] = values[tensor].astype(np.float64) - predicted
    return Ground(name, options, case, placed, values, introduced, dict(matched.twins))


def replayed(case: Case, tensor: str, placed: dict[str, Observation], values: dict[str, Array]) -> Array | None:
    observed = Observations({}, case.inputs.values, placed)
    area = region(case.model.graph, tensor, observed)
    feeds = {b: values[b] if b in values else case.inputs.values[b] for b in area.boundary}
    got = case.engine.replay(area.nodes, feeds, [tensor])[tensor]
    return None if isinstance(got, Unavailable) else got


def propagate(found: Ground, tensor: str, wrong: Array) -> dict[str, Array]:
    """Every observed value after the fault: below it, computed again plus the healthy residual."""
    values = {**found.values, tensor: wrong.astype(found.values[tensor].dtype)}
    dirty = {tensor}
    stepped = not any(n.op in QUANTISING for n in found.case.model.graph.nodes)  # else the levels are made by nodes of the model
    observed = Observations({}, found.case.inputs.values, found.placed)
    for name in found.case.model.graph.tensors:
        if name not in found.placed or name == tensor:
            continue
        area = region(found.case.model.graph, name, observed)
        if not dirty & set(area.boundary):
            continue
        predicted = replayed(found.case, name, found.placed, values)
        if predicted is None or predicted.shape != values[name].shape:
            continue
        dirty.add(name)
        values[name] = as_the_target(predicted, found.values[name], found.introduced.get(name), stepped=stepped)
    return {name: values[name] for name in dirty}


def as_the_target(predicted: Array, healthy: Array, introduced: Array | None, *, stepped: bool) -> Array:
    """A value as the healthy target would have made it: on the levels that its tensor has, else with what it introduced there."""
    step = grid_step(healthy) if stepped and is_float(healthy.dtype) else None
    if step is not None:
        low, high = float(healthy.min()), float(healthy.max())
        levels = np.rint((predicted.astype(np.float64) - low) / step) * step + low
        return np.where(np.isnan(predicted), predicted, np.clip(levels, low, high)).astype(predicted.dtype)
    return predicted if introduced is None else (predicted + introduced).astype(predicted.dtype)


def stored(entry: Entry, seen: Observation, values: Array) -> Entry | None:
    """The entry as the target would have written these values; None where its layout cannot be undone."""
    try:
        raw = values if seen.fix is None else seen.fix.invert(values)
    except ValueError:
        return None
    if entry.quant is not None and entry.dtype is not None and entry.dtype.kind in "iu":
        limits = np.iinfo(entry.dtype)
        codes = np.rint(np.nan_to_num(raw / np.asarray(entry.quant.scale))) + np.asarray(entry.quant.zero_point)
        raw = np.clip(codes, limits.min, limits.max).astype(entry.dtype)
    elif entry.dtype is not None:
        raw = raw.astype(entry.dtype)
    shaped = raw.reshape(entry.shape) if entry.shape is not None else raw
    return replace(entry, reader=lambda _expect: shaped)


def copy(twin: Entry, healthy: Array, values: Array) -> Entry | None:
    """A second entry of the tensor with these values, in the layout in which it held the healthy ones; None where none fits."""
    if twin.shape is None or twin.dtype is None:
        return None
    held = twin.load(None).astype(np.float64)
    layouts = [fix for fix in fixes(twin.shape, healthy.shape) if not fix.crops]
    fix = min(layouts, key=lambda one: residual(one.apply(held), healthy), default=None)
    if fix is None:
        return None
    raw = fix.invert(values).astype(twin.dtype)
    return replace(twin, reader=lambda _expect: raw)


def trial(found: Ground, changed: dict[str, Array]) -> Hunt | None:
    """The judge on the changed dump."""
    by_key = {e.key: e for e in found.case.catalogue.entries}
    for tensor, values in changed.items():
        seen = found.placed[tensor]
        fresh = stored(by_key[seen.claim.entry], seen, values)
        if fresh is None:
            return None
        by_key[fresh.key] = fresh
        for twin, first in found.twins.items():
            if first == fresh.key and (copied := copy(by_key[twin], found.values[tensor], values)) is not None:
                by_key[twin] = copied
    # values that are in no ONNX graph cannot be computed again: a dump that held both would be no run of anything
    placed = {o.claim.entry for o in found.placed.values()}
    kept = placed | {twin for twin, first in found.twins.items() if first in placed or first in found.case.inputs.values}
    names = found.case.claims.beside(found.case.model.graph.order)
    by_key = {k: e for k, e in by_key.items() if k in kept or k in names or e.role is not Role.TARGET}
    case = prepare(found.options)
    case.entries = by_key
    case.catalogue = replace(case.catalogue, entries=tuple(by_key.values()))
    case.claims = replace(case.claims, claims=tuple(c for c in case.claims.claims if c.entry in by_key))
    hunt = Hunt(case, SILENT)
    hunt.run()
    return hunt


def outcome(hunt: Hunt, tensor: str, *, file_only: bool) -> str:
    result = compose(hunt, 0.0)
    node = hunt.case.model.graph.producer[tensor]
    if result.verdict is Verdict.FAULT:
        first = result.culprits[0].region
        held = first.output == tensor or node in {n.index for n in first.nodes}
        return "right" if held and not file_only else "wrong"
    if result.verdict is Verdict.DUMP_SUSPECT:
        named = {e.tensor for e in result.suspected_entries}
        return "right" if file_only and named == {tensor} else "wrong"
    if file_only:
        return "right"
    return "missed" if result.verdict is Verdict.ALIGNED else "undecided"


def run_case(file: Path, count: int, seed: int, *, file_only: bool) -> Counter[str]:
    truth = json.loads(file.read_text())
    tally: Counter[str] = Counter()
    try:
        found = ground(truth["name"], options_of(file.parent, truth))
    except BisectAlignError as trouble:
        print(f"{truth['name']}: {trouble}")
        return tally
    rng = np.random.default_rng(seed)
    places = [t for t in found.introduced if found.values[t].size >= SMALLEST and found.placed[t].supported]
    rng.shuffle(places)
    for i, tensor in enumerate(places[: 3 * count]):
        if tally.total() >= count:
            break
        kind = KINDS[i % len(KINDS)]
        entry = found.case.entries[found.placed[tensor].claim.entry]
        if kind == "nan" and entry.dtype is not None and entry.dtype.kind in "iu":
            continue  # codes have no NaN
        wrong = plant(kind, found.values[tensor])
        effect = np.linalg.norm(np.nan_to_num(wrong - found.values[tensor], nan=1e9))
        if effect < EFFECT * max(
            float(np.linalg.norm(found.introduced[tensor])), 1e-6 * float(np.linalg.norm(found.values[tensor]))
        ):
            continue
        changed = {tensor: wrong} if file_only else propagate(found, tensor, wrong)
        try:
            hunt = trial(found, changed)
            if hunt is None:
                continue
            kept = outcome(hunt, tensor, file_only=file_only)
        except BisectAlignError as trouble:
            kept = f"trouble: {trouble}"
        tally[kept.split(":")[0]] += 1
        if kept not in ("right",):
            what = compose(hunt, 0.0).summary if hunt is not None and not kept.startswith("trouble") else kept
            print(f"  {kept:9s} {kind}@{tensor} ({found.placed[tensor].claim.rule}, {found.placed[tensor].status}): {what[:200]}")
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, default=Path(__file__).parent.parent / "models" / "healthy")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file-only", action="store_true")
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    for file in sorted(asked.corpus.rglob("case.json")):
        if asked.only not in file.parent.name:
            continue
        with np.errstate(all="ignore"):
            tally = run_case(file, asked.faults, asked.seed, file_only=asked.file_only)
        total += tally
        print(f"{file.parent.name:36s} {dict(tally)}", flush=True)
    print(
        f"{total['right']} right, {total['undecided']} undecided, {total['missed']} missed, {total['wrong']} wrong of {total.total()}"
    )
    return 1 if total["wrong"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
