"""What to do next: which tensors to dump, which nodes to keep in a higher precision, which ranges to widen. Each with its figures."""

from __future__ import annotations

from collections.abc import Iterator

from bisect_align.dumps.convention import AUTO
from bisect_align.dumps.convention import load as load_convention
from bisect_align.judgement.conviction import Finding, Ruling
from bisect_align.judgement.precision import INT8_LEVELS
from bisect_align.model.operators import QUANTISING
from bisect_align.model.parameters import never_fed
from bisect_align.model.region import region
from bisect_align.result.result import Accumulation, Culprit, Kind, Verdict
from bisect_align.result.words import count, quoted
from bisect_align.search.splitting import Split, splits
from bisect_align.session.golden import value_range
from bisect_align.session.hunt import Hunt, upwards
from bisect_align.session.phrases import percent, where

DUMPS = 3  # tensors to dump, in one step
PAIRED = ("codes", "consumers")  # views of an entry (dumps.entry) that only a quantised model has
OPTION = "--quantized-model"
KEPT = 3  # contributors, clamped tensors or lossy regions that are named


def advice(hunt: Hunt, name: Verdict, culprits: tuple[Culprit, ...], sums: Accumulation | None) -> tuple[str, ...]:
    """What would help most, best first."""
    if name is Verdict.INPUT_MISMATCH:
        return ("Give the inputs that the target ran on with --inputs, or run the target again (preprocessing, layout, sample).",)
    return tuple(dict.fromkeys(_steps(hunt, name, culprits, sums)))


def _steps(hunt: Hunt, name: Verdict, culprits: tuple[Culprit, ...], sums: Accumulation | None) -> Iterator[str]:
    yield from _of_twin(hunt)
    yield from _flaky(hunt)
    yield from _of_culprits(hunt, culprits)
    if sums is not None:
        yield from _of_contributors(sums)
    # who is convicted at the coarsest precision is convicted at any
    if not hunt.evidence.precision.fitted and not (culprits and hunt.evidence.precision.precision.stepped):
        yield "Give --precision: the dump alone does not tell the precision of the run."
    if name is Verdict.UNDECIDED and hunt.evidence.trusted:
        yield from _of_open_regions(hunt)
    yield from _of_clamps(hunt, culprits)
    if name is Verdict.DUMP_SUSPECT:
        yield "Dump this tensor again, or leave its entry out with a map file (--map)."
    if hunt.evidence.matched.dropped:
        yield "Name the entries that fit nothing with --map, if they should be compared."


# --- the target ---------------------------------------------------------------------------------------------------------------


def _of_twin(hunt: Hunt) -> Iterator[str]:
    """A dump of a quantised model, by the convention that it bears and the values around quantise/dequantise pairs that it holds."""
    case = hunt.case
    quantised = any(node.op in QUANTISING for node in case.model.graph.nodes)
    if case.options.quantized_model or quantised or not any(e.view in PAIRED for e in case.catalogue.entries):
        return
    told = load_convention(case.catalogue.convention if case.options.convention == AUTO else case.options.convention)
    texts = (told.make.text, told.quantisation.scale if told.quantisation else "")
    if any(OPTION in text for text in texts):
        yield (
            f"Give the quantised model that the target ran with {OPTION}: the dump is one of {told.title}, "
            "and holds values of quantise/dequantise pairs that this model does not have."
        )


def _flaky(hunt: Hunt) -> Iterator[str]:
    """A target that does not make the same values twice."""
    repeats = hunt.findings.repeats
    if repeats is None or not repeats.differing:
        return
    if repeats.inputs not in ("equal", "not compared"):
        yield f"Dump all runs on one input: {repeats.inputs} between the dumps, so what differs may come from that."
        return
    first = next((d for d in repeats.differing if d.tensor == repeats.begins), repeats.differing[0])
    size = f"by up to {first.max_abs:.3g}" if first.max_abs is not None else f"({first.reason})"
    begins = (
        f"it begins at {quoted(first.tensor)}"
        if repeats.begins
        else f"the first that was seen is {quoted(first.tensor or first.entry)}"
    )
    differ = "differs" if len(repeats.differing) == 1 else "differ"
    yield (
        f"Find out why {count(len(repeats.differing), 'tensor')} {differ} between runs: {begins}, {size} "
        "(a race, memory that is not initialised, another order of sums)."
    )


# --- culprits -----------------------------------------------------------------------------------------------------------------


def _of_culprits(hunt: Hunt, culprits: tuple[Culprit, ...]) -> Iterator[str]:
    for culprit in culprits[:1]:
        area = hunt.findings.rulings[culprit.region.output].judged.region
        yield from _to_dump(splits(hunt.case.model.graph, [(area.output, area.nodes)], _eligible(hunt), DUMPS))
        if unseen := _unseen_inputs(hunt, culprit):
            given = f"Make sure that the target ran on this {quoted(unseen[0])}"
            yield f"{given}: the dump holds no copy of it, and a wrong input looks like this."
    lossy = [c for c in culprits if c.kind is Kind.PRECISION_LOSS]
    for culprit in lossy[:KEPT]:
        yield _keep_exact(hunt, culprit)
    for culprit in culprits[:KEPT]:
        output = culprit.region.output
        if culprit.kind is Kind.NON_FINITE and "range of float16" in hunt.findings.rulings[output].judged.score.note:
            low, high = hunt.golden.range(output)
            kept = f"Keep {where(culprit)} at {quoted(output)} in fp32, or scale it"
            yield f"{kept}: the golden spans [{low:.4g}, {high:.4g}], fp16 ends at 65504."
    if culprits and not hunt.case.options.scan:
        yield "Run again with --scan to list all culprits."


def _keep_exact(hunt: Hunt, culprit: Culprit) -> str:
    low, high = hunt.golden.range(culprit.region.output)
    return (
        f"Keep {where(culprit)} at {quoted(culprit.region.output)} in a higher precision, or change its range: the golden spans "
        f"[{low:.4g}, {high:.4g}], {culprit.noise.precision} introduces {percent(culprit.introduced.rel_l2)} "
        "(a mask of -10000 that shares a scale with the scores does that)."
    )


def _unseen_inputs(hunt: Hunt, culprit: Culprit) -> list[str]:
    """Graph inputs at the boundary of a culprit that were given, and that the dump holds no copy of to compare them with."""
    return [name for name in culprit.region.boundary if name in hunt.case.unseen_inputs]


# --- precision and calibration --------------------------------------------------------------------------------------------------


def _of_contributors(sums: Accumulation) -> Iterator[str]:
    """The nodes that would lessen the error of an output most, in the order in which to take them."""
    before = sums.error
    for at, one in enumerate(sums.contributors[:KEPT]):
        ops = "+".join(one.region.ops)
        text = f"Keep {ops} at {quoted(one.region.output)} in a higher precision{' as well' if at else ''}: without its error"
        yield f"{text} ({percent(one.introduced)}) {quoted(sums.output)} is off by {percent(one.together)} instead of {percent(before)}."
        before = one.together
    if not sums.contributors:
        yield (
            f"Choose a finer precision for the whole run: none of the {sums.tried} largest of {sums.regions} errors above "
            f"{quoted(sums.output)} matters alone."
        )


def _of_clamps(hunt: Hunt, culprits: tuple[Culprit, ...]) -> Iterator[str]:
    """int8 tensors that are clipped, and that end where the golden's values go on (one step is rounding)."""
    if not hunt.evidence.precision.precision.stepped:
        return
    told = {c.region.output for c in culprits if any(s.name == "clamp" for s in c.symptoms)}
    told |= {t for t, r in hunt.findings.rulings.items() if _clips(r)}
    found = []
    for tensor in told:
        low, high = value_range(hunt.evidence.observations.value(tensor))
        least, most = hunt.golden.range(tensor)
        short = max(low - least, most - high)
        if short > (most - least) / INT8_LEVELS:
            found.append((-short / (most - least), tensor, (low, high), (least, most)))
    for _, tensor, (low, high), (least, most) in sorted(found)[:KEPT]:
        yield (
            f"Widen the calibration range of {quoted(tensor)}: the target ends at [{low:.4g}, {high:.4g}], "
            f"the golden spans [{least:.4g}, {most:.4g}]."
        )


def _clips(ruling: Ruling) -> bool:
    """Clipped by more than calibration does, though nobody can tell calibration from fault without the scales."""
    score = ruling.judged.score
    clipped = score.statistic == "clip" or score.note.startswith("saturates")
    return clipped and (ruling.finding in (Finding.SUSPECT, Finding.ABSORBED) or ruling.judged.suspect)


# --- tensors to dump --------------------------------------------------------------------------------------------------------------


def _of_open_regions(hunt: Hunt) -> Iterator[str]:
    """What would decide: tensors inside the regions that nothing is known of; else inside those above an output that is off."""
    graph, judge, placed = hunt.case.model.graph, hunt.evidence.court.judge, hunt.evidence.matched.placed
    beyond = hunt.beyond()
    above = set(upwards(hunt.evidence.observed, beyond[0])) if beyond else set(hunt.evidence.observed.order)
    rulings = {t: r for t, r in hunt.findings.rulings.items() if t in above}
    open_ = [
        t for t, r in rulings.items() if r.finding is Finding.UNKNOWN or (r.finding is Finding.SUSPECT and r.judged.convicted)
    ]
    regions = [(t, judge.region(t).nodes) for t in open_]
    regions += [(o, region(graph, o, placed.keys()).nodes) for o in graph.outputs if o in graph.order and o not in placed]
    eligible = _eligible(hunt)
    found = splits(graph, regions, eligible, DUMPS)
    if not found:  # nothing is open, but so little is seen that nothing is certain
        found = splits(graph, [(t, judge.region(t).nodes) for t in rulings], eligible, DUMPS)
    yield from _to_dump(found)
    for tensor in open_:
        if rulings[tensor].finding is Finding.SUSPECT:
            readers = [n for i in graph.consumers.get(tensor, ()) for n in graph.nodes[i].makes if n in eligible]
            if readers:
                yield f"Dump {quoted(readers[0])}: it is computed from {quoted(tensor)}, and shows whether that value was the one read."
                return


def _eligible(hunt: Hunt) -> set[str]:
    """Tensors that are not in the dump and could be compared if they were."""
    graph, placed = hunt.case.model.graph, hunt.evidence.matched.placed
    barred = never_fed(graph)
    return {t for t in graph.tensors if t not in placed and t not in barred and not graph.is_constant(t)}


def _to_dump(found: tuple[Split, ...]) -> Iterator[str]:
    if found:
        first, *others = found
        rest = f"; then {' and '.join(quoted(s.tensor) for s in others)}" if others else ""
        yield f"Dump {quoted(first.tensor)} too: it splits the region of {first.nodes} nodes (at most {first.left} are left){rest}."
