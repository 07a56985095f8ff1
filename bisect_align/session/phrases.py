"""The verdict in one sentence, and the words that it is made of."""

from __future__ import annotations

from math import isfinite

from bisect_align.judgement.conviction import Finding
from bisect_align.result.result import Consumed, Culprit, Kind, State, Verdict
from bisect_align.result.words import convicting, quoted
from bisect_align.session.hunt import Hunt

FAR_CLEARER = 10.0  # a score that is so many times that of the first culprit is named too

KINDS = {
    Kind.WRONG_RESULT: "gives a wrong result",
    Kind.WRONG_SHAPE: "gives a wrong shape",
    Kind.NON_FINITE: "gives NaN or infinite values",
    Kind.PRECISION_LOSS: "is computed right, but the number format destroys its signal",
}


def percent(x: float | None) -> str:
    if x is None:
        return "unknown"
    if x == float("inf"):
        return "infinite (the golden is all zero)"
    return f"{100 * x:.3g} %" if x >= 1e-4 else f"{x:.2g}"


def where(culprit: Culprit) -> str:
    """The node, or the region where the dump cannot split it."""
    nodes = culprit.region.nodes
    if len(nodes) == 1:
        node = nodes[0]
        return f"{node.op} {quoted(node.name)}" if node.name else f"{node.op} (node {node.index})"
    ops = culprit.region.ops
    return f"the region of {len(nodes)} nodes ({', '.join(ops[:4])}{', …' if len(ops) > 4 else ''}) that ends"


def compared(hunt: Hunt) -> str:
    """n of m, and the outputs that were not there."""
    graph = hunt.case.model.graph
    placed = hunt.evidence.matched.placed
    known = {t for t, c in hunt.findings.compared.items() if c.state is not State.UNKNOWN}
    missing = [o for o in graph.outputs if o in graph.order and o not in placed]
    unknown = [o for o in graph.outputs if o in placed and o not in known]
    parts = [f"{len(known)} of {len(graph.tensors)} tensors were compared"]
    for what, names in (("not in the dump", missing), ("not compared", unknown)):
        if names:
            parts.append(f"{what}: output {', '.join(map(quoted, names[:3]))}")
    if left := hunt.unmatched():
        parts.append(
            f"{len(left)} {'entry fits' if len(left) == 1 else 'entries fit'} no tensor and {'was' if len(left) == 1 else 'were'} not heard"
        )
    return "; ".join(parts)


def summary(hunt: Hunt, name: Verdict, culprits: tuple[Culprit, ...]) -> str:
    """The verdict in one sentence, and in another that the target is not deterministic, where that was seen."""
    return " ".join(text for text in (_verdict(hunt, name, culprits), _unsteady(hunt)) if text)


def _unsteady(hunt: Hunt) -> str:
    """What differs between the dumps of one run."""
    repeats = hunt.findings.repeats
    if repeats is None or not repeats.differing:
        return ""
    if repeats.inputs not in ("equal", "not compared"):
        return f"The dumps given with --repeat-dump are of other inputs ({repeats.inputs})."
    count = len(repeats.differing)
    begins = f"it begins at {quoted(repeats.begins)}" if repeats.begins else "where it begins is not seen"
    return f"The target is not deterministic: {count} tensor{'s differ' if count > 1 else ' differs'} between its runs, {begins}."


def _verdict(hunt: Hunt, name: Verdict, culprits: tuple[Culprit, ...]) -> str:
    if name is Verdict.INPUT_MISMATCH:
        return f"The target ran on another input: {_mismatch(hunt)}."
    if name is Verdict.GOLDEN_SUSPECT:
        return f"The golden dump is suspect: ONNX Runtime agrees with the target at {quoted(hunt.findings.golden_suspect[0])}."
    if name is Verdict.FAULT:
        return _fault(hunt, culprits)
    if name is Verdict.DUMP_SUSPECT:
        ruling = next(r for r in hunt.findings.rulings.values() if r.finding is Finding.FILE)
        entry = hunt.evidence.matched.placed[ruling.tensor].claim.entry
        why = f"holds the value of {quoted(ruling.holds)}" if ruling.holds else "is not the value that its consumers read"
        return f"A file of the dump is suspect, not an operator: {quoted(entry)}, named after {quoted(ruling.tensor)}, {why}."
    beyond = hunt.beyond()
    if name is Verdict.UNDECIDED:
        return sentence(f"{_undecided(hunt, beyond)}; {compared(hunt)}.")
    if name is Verdict.ACCUMULATION:
        return (
            f"No operator is at fault, but errors accumulate to {_worst(hunt)} at {quoted(beyond[0])}, "
            f"more than noise explains or you allow; {compared(hunt)}."
        )
    precision = hunt.evidence.precision.precision.name
    return f"Every region does what {precision} explains, the outputs are within {_worst(hunt)}; {compared(hunt)}."


def _mismatch(hunt: Hunt) -> str:
    if (found := hunt.findings.wrong_input) is not None:
        also = f" (so {_do(found.also)} that {'read' if found.also > 1 else 'reads'} it too)" if found.also else ""
        return (
            f"{quoted(found.first)} follows from {quoted(found.tensor)} {found.relation}{also}: that brings its error from "
            f"{percent(found.before)} down to {percent(found.left)}"
        )
    check = next(c for c in hunt.case.checks if c.differs)
    same = f"; it is {quoted(check.tensor)} {check.relation}" if check.relation else ""
    return (
        f"{quoted(check.tensor)} in the dump differs from the one given by {percent(check.figures.rel_l2)} (relative L2){same}; "
        "nothing further was compared"
    )


def _do(more: int) -> str:
    return f"do {more} more tensors" if more > 1 else "does 1 more tensor"


def sentence(text: str) -> str:
    """With a capital at its head (names in quotes stay as they are)."""
    return text[:1].upper() + text[1:]


def _fault(hunt: Hunt, culprits: tuple[Culprit, ...]) -> str:
    first = culprits[0]
    subject = where(first)
    size = ""
    if first.kind is Kind.NON_FINITE:
        size = f": {hunt.findings.rulings[first.region.output].judged.score.note}"
    elif first.kind is not Kind.WRONG_SHAPE:
        size = f": {_size(first)}"
    consumed = ", and what follows was computed from it" if first.certificate.consumed is Consumed.YES else ""
    like = 1 + len(first.same_as)
    equal = "" if like == 1 else ", all alike" if like == len(culprits) else f", {like} of them like this one"
    more = f" ({len(culprits)} culprits in all{equal}{clearest(culprits)})" if len(culprits) > 1 else ""
    whole = ", the whole model (the dump holds nothing in between)" if _whole(hunt, first) else ""
    return sentence(f"{subject} at {quoted(first.region.output)}{whole} {KINDS[first.kind]}{size}{consumed}{more}.")


def clearest(culprits: tuple[Culprit, ...]) -> str:
    """The culprit with the highest score, where that of the first, which is first in the graph, is far from it."""
    first, best = culprits[0], max(culprits, key=lambda c: c.noise.score if isfinite(c.noise.score) else 0.0)
    if best.noise.score < FAR_CLEARER * first.noise.score:
        return ""
    score = f"{best.noise.score:.3g} against {first.noise.score:.3g}"
    return f"; the clearest is {best.region.nodes[-1].op} at {quoted(best.region.output)}, score {score}"


def _size(culprit: Culprit) -> str:
    """The figures that convict: the error over all elements, or, where that is no more than noise, the statistic that is."""
    introduced, expected = percent(culprit.introduced.rel_l2), percent(culprit.noise.expected)
    if told := convicting(culprit):
        return f"{told} (over all elements {introduced}, where noise explains {expected})"
    return f"introduced error {introduced}, {culprit.noise.precision} noise explains {expected}"


def _undecided(hunt: Hunt, beyond: tuple[str, ...]) -> str:
    if not hunt.evidence.trusted:
        return (
            "most of the dump contradicts the model, more than operators at fault would: "
            "is it the right model, the right input, the right sample, and are the names those of the values?"
        )
    if beyond and (ruling := hunt.findings.rulings.get(beyond[0])) is not None and ruling.finding is Finding.NAME:
        holds = f"the entry of {quoted(beyond[0])} holds the value of {quoted(ruling.holds)}"
        return f"{holds}: what lies between was left out, or its name is wrong"
    if beyond:
        return f"{quoted(beyond[0])} is beyond noise, and what the dump holds cannot show where that comes from"
    if not hunt.evidence.precision.fitted:
        return f"the precision of the run is not certain ({hunt.evidence.precision.precision.name} at the finest)"
    return "nothing is beyond noise, but some regions could not be judged"


def _whole(hunt: Hunt, culprit: Culprit) -> bool:
    inputs = hunt.case.model.graph.inputs
    return (
        len(culprit.region.nodes) > 1
        and culprit.region.output in hunt.case.model.graph.outputs
        and all(b in inputs for b in culprit.region.boundary)
    )


def _worst(hunt: Hunt) -> str:
    """Largest relative error of the outputs, or of the deepest tensors where the dump holds no output."""
    compared = hunt.findings.compared
    errors = [f.rel_l2 for n in hunt.ends() if (f := compared[n].figures) is not None and f.rel_l2 is not None]
    return percent(max(errors)) if errors else "unknown"
