"""What the drill says of a place: why it is blamed or not, what stands around it, what the run has cost. Texts, for app and pipe alike."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text

from bisect_align.drill.navigation import Position, error, state
from bisect_align.drill.pictures import DIM, SIGNS, STYLES, TAG, short, sign
from bisect_align.drill.terrain import Terrain
from bisect_align.judgement.judge import CONVICT
from bisect_align.report.figures import number, phrase
from bisect_align.result.escape import visible
from bisect_align.result.result import Consumed, Culprit, NodeInfo, Result, State
from bisect_align.result.words import convicting, count
from bisect_align.search.answer import Answer, Clean, Crossing

_SHOWN = 6
WIDTH = 75  # columns of a text, also where a terminal is wider: longer lines are hard to read
LABEL = 12  # of them for the words at the left
VERDICTS = {"FAULT": STYLES[State.BAD], "ALIGNED": STYLES[State.GOOD]}  # the others are yellow


def lines_of(lines: Sequence[Text]) -> Text:
    return Text("\n").join(lines)


def fact(label: str, text: str | Text, style: str = "") -> Text:
    """A word in dim, then what it stands for: a text is wrapped beside it, a line that is ready made stays as it is."""
    line = Text.assemble((f"{label:<{LABEL}}", DIM))
    if isinstance(text, Text):
        return line.append_text(text)
    rows = textwrap.wrap(visible(text), WIDTH - LABEL, break_on_hyphens=False) or [""]
    return line.append(f"\n{' ' * LABEL}".join(rows), style)


def where(position: Position, terrain: Terrain, tensor: str, width: int = WIDTH - LABEL) -> Text:
    """One line: sign, state, error, name."""
    size, now = error(position, terrain, tensor), state(position, terrain, tensor)
    tags = role(position, terrain, tensor)
    op = terrain.rows[tensor].op if tensor in terrain.rows else ""
    line = Text.assemble((f"{SIGNS[now]} {now:<8}", STYLES[now]), (f"{number(size):>9}  ", "" if size else DIM))
    room = width - len(line) - (len(tags) + 2 if tags else 0)
    if len(visible(tensor)) + len(op) + 2 > room:
        op = ""  # it mostly stands in the name
    line.append(short(tensor, max(room, 12)), "bold" if tensor == position.tensor else "")
    line.append(f"  {visible(op)}" if op else "", DIM)
    return line.append(f"  {tags}" if tags else "", TAG)


def role(position: Position, terrain: Terrain, tensor: str) -> str:
    """What there is to say of a tensor beyond its state: culprit, suspect, crossing, input, not dumped, marked, end of a cut."""
    row = terrain.rows.get(tensor)
    crossings = {crossing.tensor for crossing in terrain.result.crossings}
    words = [
        f"culprit {list(terrain.culprits).index(tensor) + 1}" if tensor in terrain.culprits else "",
        "suspect" if tensor in terrain.suspects else "",
        "crossing" if tensor in crossings and tensor not in terrain.culprits else "",
        "graph input" if row is None else "" if row.entry is not None else "not in the dump",
        "marked" if tensor in position.marks else "",
        "cut from here" if tensor == position.anchor else "",
    ]
    return ", ".join(word for word in words if word)


# --- why --------------------------------------------------------------------------------------------------------------------
def why(position: Position, terrain: Terrain, tensor: str) -> Text:
    """Why a tensor is blamed, or why it is not, with the figures that the run left."""
    head = Text.assemble(sign(state(position, terrain, tensor)), "  ", (visible(tensor), "bold"))
    if tensor in position.marks:
        head.append("  (marked by hand)", TAG)
    if tensor in terrain.culprits:
        return lines_of([head, Text(), *_blamed(terrain, terrain.culprits[tensor])])
    return lines_of([head, Text(), *_not_blamed(position, terrain, tensor)])


def _blamed(terrain: Terrain, culprit: Culprit) -> Iterator[Text]:
    certificate, noise = culprit.certificate, culprit.noise
    at, count = list(terrain.culprits).index(culprit.region.output) + 1, len(terrain.culprits)
    yield fact("blamed", f"culprit {at} of {count}: {culprit.kind}", STYLES[State.BAD])
    yield from _nodes(culprit.region.nodes)
    for given in certificate.boundary or ():
        figures = f", {phrase(given.figures)}" if given.figures else ""
        yield fact("1 fed with", Text.assemble(sign(given.state), " ", visible(given.tensor)))
        yield fact("", f"{given.source}{figures}")
    if not certificate.boundary:
        yield fact("1 fed with", "constants only")
    yield fact("2 gave", f"against ONNX Runtime on the same values: {phrase(certificate.replay)}")
    limit = f"a healthy {noise.precision} target introduces {number(noise.expected)} here"
    yield fact("3 noise", f"{limit}: score {number(noise.score)}, convicted above {CONVICT:g}; could hide {number(noise.hides)}")
    if told := convicting(culprit):
        yield fact("", told)
    yield fact("4 read by", _consumed(culprit))
    sizes = (("inherited", culprit.inherited), ("introduced", culprit.introduced), ("accumulated", culprit.accumulated))
    yield fact("relative L2", ", ".join(f"{name} {number(f.rel_l2)}" for name, f in sizes if f is not None))
    for symptom in culprit.symptoms:
        yield fact("looks like", f"{symptom.name}: {symptom.text}")
    for guess in culprit.hypotheses:
        yield fact("as if", guess)
    if culprit.repro:
        yield fact("model", culprit.repro)


def _consumed(culprit: Culprit) -> str:
    readers = ", ".join(culprit.certificate.by[:_SHOWN])
    said = {
        Consumed.YES: "the wrong value was read" + (f" by {readers}" if readers else " downstream"),
        Consumed.NO: "what follows was computed from the right value" + (f" ({readers})" if readers else ""),
        Consumed.UNSEEN: "nothing below it in the dump can tell",
    }
    return said[culprit.certificate.consumed]


def _not_blamed(position: Position, terrain: Terrain, tensor: str) -> Iterator[Text]:
    row = terrain.rows.get(tensor)
    if row is None:
        given = next(g for g in terrain.result.inputs if g.name == tensor)
        shape = "x".join(map(str, given.shape)) or "scalar"
        yield fact("input", f"{given.dtype} {shape} from {given.source}")
        if given.checked is not None:
            yield fact("dump's copy", phrase(given.checked))
        return
    learnt = position.learnt.get(tensor)
    yield fact("state", learnt.reason if learnt is not None else row.reason or "within the policy")
    yield from _nodes(terrain.nodes(tensor, position.reach))
    if row.entry is not None:
        layout = f", layout {row.fix}" if row.fix not in (None, "id") else ""
        yield fact("entry", f"{row.entry} ({row.rule}{layout})")
    if row.accumulated is not None:
        yield fact("accumulated", phrase(row.accumulated))
    if row.score is not None:
        yield fact("introduced", f"relative L2 {number(row.introduced)}, score {number(row.score)}, convicted above {CONVICT:g}")
    if tensor in terrain.suspects:
        yield fact("suspect", f"{terrain.suspects[tensor].reason}: listed, never an accusation")
    yield from (
        fact("file", f"{e.entry} is suspected: {e.reason}") for e in terrain.result.suspected_entries if e.tensor == tensor
    )
    yield from (fact("not judged", n.reason) for n in terrain.result.not_judged if n.tensor == tensor)
    above = [name for name in terrain.ancestors(tensor) if name in terrain.culprits]
    if above and state(position, terrain, tensor) is not State.GOOD:
        yield fact("inherits", f"computed from {above[0]}, which is blamed")


def _nodes(nodes: Sequence[NodeInfo]) -> Iterator[Text]:
    for node in nodes[:_SHOWN]:
        yield fact("node" if len(nodes) == 1 else "region", f"{node.operator} {node.name or '(no name)'}, node {node.index}")
        if node.attributes:
            yield fact("", ", ".join(f"{key}={value}" for key, value in node.attributes.items()))
    if len(nodes) > _SHOWN:
        yield fact("", f"and {len(nodes) - _SHOWN} more nodes")


# --- around -----------------------------------------------------------------------------------------------------------------
def around(position: Position, terrain: Terrain) -> Text:
    """The region one stands in: its boundary above, its operators, its output, who reads it."""
    tensor = position.tensor
    lines = [fact("above", where(position, terrain, name)) for name in terrain.above(tensor, position.reach)[:_SHOWN]]
    lines = lines or [fact("above", "nothing: constants only" if tensor in terrain.rows else "nothing: a graph input")]
    lines += list(_nodes(terrain.nodes(tensor, position.reach)))
    lines.append(fact("here", where(position, terrain, tensor)))
    below = terrain.below(tensor)
    lines += [fact("below", where(position, terrain, name)) for name in below[:_SHOWN]]
    if len(below) > _SHOWN:
        lines.append(fact("", f"and {len(below) - _SHOWN} more"))
    return lines_of(lines or [Text("nothing is known of its neighbours")])


# --- proof and cost ---------------------------------------------------------------------------------------------------------
def budget(result: Result) -> Text:
    """What the run has judged and what it has cost."""
    cost = result.search
    lines = [
        fact("search", f"{'all regions' if cost.scan else 'bisection'}: {count(cost.probes, 'tensor')} compared with the golden"),
        fact(
            "",
            f"{count(cost.rounds, 'round')}, {count(cost.passes, 'golden pass')}, {count(cost.replays, 'replay')}{_seconds(result)}",
        ),
    ]
    if result.target is not None:
        lines.append(fact("precision", f"{result.target.precision} ({result.target.precision_evidence})"))
    if result.policy is not None:
        lines.append(
            fact("policy", ", ".join((result.policy.name, *(f"{k} {v:g}" for k, v in result.policy.thresholds.items()))))
        )
    if result.coverage is not None:
        seen = f"{result.coverage.observed} of {result.coverage.tensors} tensors matched"
        lines.append(fact("coverage", f"{seen}, {result.coverage.used} of {result.coverage.entries} entries used"))
    if result.not_judged:
        lines.append(fact("not judged", f"{count(len(result.not_judged), 'tensor')}, whose regions were not replayed"))
    lines += [fact("warning", text, STYLES[State.UNKNOWN]) for text in result.warnings[:_SHOWN]]
    lines += [fact("next", text) for text in result.next]
    return lines_of(lines)


def _seconds(result: Result) -> str:
    return f", {result.timing['total']:.1f} s" if "total" in result.timing else ""


def verdict(result: Result) -> Text:
    """The verdict as one word, and its sentence below it."""
    return lines_of([verdict_word(result), fact("", result.summary)])


def verdict_word(result: Result) -> Text:
    """Such as FAULT."""
    word = result.verdict.upper() if result.verdict else "INCOMPLETE"
    return Text(word, VERDICTS.get(word, STYLES[State.UNKNOWN]))


# --- answers of a search ----------------------------------------------------------------------------------------------------
def answer(position: Position, terrain: Terrain, found: Answer) -> Text:
    """What a search by hand has ended with, and on which states it rests."""
    if isinstance(found, Crossing):
        lines = [fact("crossing", where(position, terrain, found.tensor))]
        lines += [fact("good above", where(position, terrain, name)) for name in found.boundary]
        if not found.boundary:
            lines.append(fact("good above", "the graph's inputs"))
        if found.cleared_unknown:
            lines.append(fact("unknown", f"between them, and may hold the cause: {', '.join(found.cleared_unknown[:_SHOWN])}"))
    elif isinstance(found, Clean):
        lines = [fact("clean", f"the deepest tensors are GOOD: {', '.join(found.good[:_SHOWN])}")]
    else:
        lines = [fact("nothing", found.reason)]
    by_hand = [f"{name} {value}" for name, value in position.marks.items()]
    if by_hand:
        lines.append(fact("by hand", ", ".join(by_hand)))
    return lines_of(lines)
