"""The result as text for a terminal of 80 columns: the verdict in one sentence first, then its proof, then what to do next.

Colour only helps the eye: every word that it could stand for is written. Names come from strangers, so each piece of text goes
through Text objects (rich reads no markup in them) and visible() (no control characters reach the terminal).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bisect_align.report.figures import distributions, number, phrase
from bisect_align.result.escape import visible
from bisect_align.result.repeats import Repeats
from bisect_align.result.result import (
    Accumulation,
    BoundaryTensor,
    Coverage,
    Culprit,
    Figures,
    NodeInfo,
    RegionInfo,
    Result,
    Suspect,
    Verdict,
)
from bisect_align.result.words import convicting, count

_STYLES = {Verdict.FAULT: "bold red", Verdict.ALIGNED: "bold green"}
_SHOWN = 5  # lines of a list before "and n more": result.json holds them all
_IN_FULL = 3  # culprits shown with their proof; the rest in a line each
_CONVICTED = 2  # a score above this convicts (result.Noise)


def text(result: Result, width: int = 80) -> str:
    """The report as plain text without colour."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    console.print(report(result))
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def verdict_line(result: Result) -> Text:
    """The verdict and its one sentence."""
    word = result.verdict.upper() if result.verdict else "INCOMPLETE"
    style = _STYLES.get(result.verdict, "bold yellow") if result.verdict else "bold yellow"
    return Text.assemble((word, style), ": ", visible(result.summary))


def report(result: Result) -> Group:
    """The whole report, for a rich console."""
    return Group(*_parts(result))


def _parts(result: Result) -> Iterator[RenderableType]:
    yield verdict_line(result)
    leaders = [(at, one) for at, one in enumerate(result.culprits, 1) if _leads(result, at)]
    for position, culprit in leaders[:_IN_FULL]:
        yield from _section(f"Culprit {position} of {len(result.culprits)}: {culprit.kind}", _culprit(culprit))
    if len(leaders) > _IN_FULL:
        yield from _section("Further culprits", _list([_brief(item) for _, item in leaders[_IN_FULL:]], limit=4 * _SHOWN))
    if result.accumulation:
        yield from _section("What the error is made of", _accumulation(result.accumulation))
    if result.repeats:
        yield from _section("Between runs", _repeats(result.repeats))
    if any(row.output and row.accumulated and row.accumulated.kl is not None for row in result.tensors):
        yield from _section("Outputs", _outputs(result))
    if result.crossings:
        yield from _section("Where accumulated error crosses the threshold", _crossings(result))
    if result.suspected_entries:
        lines = [f"{entry.entry} for {entry.tensor}: {entry.reason}" for entry in result.suspected_entries]
        yield from _section("Suspected entries of the dump", _list(lines))
    if result.suspects:
        yield from _section("Suspects (not accused)", _list([_suspect(item) for item in result.suspects]))
    if result.coverage:
        yield from _section("Coverage", _coverage(result.coverage))
    yield from _section("Run", _run(result))
    if result.not_judged:
        yield from _section("Not judged by replay", _list(_not_judged(result)))
    if result.warnings:
        yield from _section("Warnings", _list(result.warnings))
    if result.next:
        yield from _section("What to do next", _list(result.next, limit=len(result.next)))


def _leads(result: Result, position: int) -> bool:
    """Whether a culprit is the first of its equals."""
    before = {culprit.region.output for culprit in result.culprits[: position - 1]}
    return before.isdisjoint(result.culprits[position - 1].same_as)


def _section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield Text(visible(title), style="bold")
    yield Padding(body, (0, 0, 0, 2))


def _culprit(culprit: Culprit) -> RenderableType:
    facts: list[tuple[str, RenderableType]] = [("node" if len(culprit.region.nodes) == 1 else "region", _region(culprit.region))]
    facts.append(("output", _plain(culprit.region.output)))
    for symptom in culprit.symptoms:
        facts.append(("symptom", _plain(f"{symptom.name}: {symptom.text}")))
    facts += [("likely cause", _plain(guess)) for guess in culprit.hypotheses]
    if culprit.same_as:
        facts.append(("equal ones", _plain(f"{family(culprit)}, also at {_some(culprit.same_as)}")))
    if culprit.witness:
        facts.append(("witness", _plain(culprit.witness)))
    facts.append(("errors", _errors(culprit)))
    facts += [("", _plain(line)) for line in _distributions(culprit)]
    if culprit.gain is not None:
        facts.append(("gain", _plain(f"{number(culprit.gain)} times the error that came in is handed on (inherited)")))
    noise = culprit.noise
    hides = f"could hide a relative error of {number(noise.hides)}"
    explains = f"a healthy {noise.precision} target introduces {number(noise.expected)} here and {hides}"
    told = f"; {said}" if (said := convicting(culprit)) else ""
    facts.append(("noise", _plain(f"score {number(noise.score)} (convicted above {_CONVICTED}): {explains}{told}")))
    facts.append(("fed with", _boundary(culprit.certificate.boundary)))
    facts.append(
        ("replay", _plain(f"target against the node run by ONNX Runtime on these: {phrase(culprit.certificate.replay)}"))
    )
    facts.append(("consumed", _plain(_consumed(culprit))))
    if culprit.certificate.deterministic is not None:
        same = "the same value in all of them" if culprit.certificate.deterministic else "another value: not deterministic here"
        facts.append(("other runs", _plain(same)))
    if culprit.repro:
        facts.append(("repro", _plain(culprit.repro)))
    return _facts(facts)


def _suspect(suspect: Suspect) -> str:
    error, noise = suspect.introduced.rel_l2, suspect.noise
    facts = [
        f"score {number(noise.score)}",
        f"relative L2 {number(error)} (noise explains {number(noise.expected)})",
        suspect.reason,
    ]
    return f"{_nodes(suspect.region)} -> {suspect.region.output}: {', '.join(fact for fact in facts if fact)}"


def _brief(culprit: Culprit) -> str:
    same = f"; {family(culprit)}, also at {_some(culprit.same_as)}" if culprit.same_as else ""
    figures = f"relative L2 {number(culprit.introduced.rel_l2)}, score {number(culprit.noise.score)}"
    return f"{_nodes(culprit.region)} -> {culprit.region.output}: {culprit.kind}, {figures}{same}"


def family(culprit: Culprit) -> str:
    """How many equal culprits, and of what: "17 × Softmax(axis=-1)"."""
    nodes = culprit.region.nodes
    attributes = ", ".join(f"{key}={value}" for key, value in nodes[0].attributes.items()) if len(nodes) == 1 else ""
    return f"{1 + len(culprit.same_as)} × {_nodes(culprit.region)}{f'({attributes})' if attributes else ''}"


def _region(region: RegionInfo) -> RenderableType:
    lines: list[RenderableType] = []
    for node in region.nodes[:_SHOWN]:
        lines.append(_plain(_node(node)))
        if node.attributes:
            attributes = ", ".join(f"{key}={value}" for key, value in node.attributes.items())
            lines.append(Padding(_plain(attributes), (0, 0, 0, 2)))
    if len(region.nodes) > _SHOWN:
        lines.append(_plain(f"and {len(region.nodes) - _SHOWN} more (see result.json)"))
    return Group(*lines)


def _node(node: NodeInfo) -> str:
    return f"{node.operator} {node.name or '(no name)'}, node {node.index}"


def _nodes(region: RegionInfo) -> str:
    ops = [node.op for node in region.nodes]
    return "+".join(ops[:_SHOWN]) + (f"+{len(ops) - _SHOWN} more" if len(ops) > _SHOWN else "")


def _errors(culprit: Culprit) -> RenderableType:
    table = _table("", "rel L2", "cosine", "max abs", "SQNR dB", "mismatched")
    rows = (("introduced", culprit.introduced), ("inherited", culprit.inherited), ("accumulated", culprit.accumulated))
    for name, figures in rows:
        if figures is not None:
            table.add_row(Text(name), *_cells(figures))
    return table


def _distributions(culprit: Culprit) -> Iterator[str]:
    """The figures on request, of what the region introduced and of what came together."""
    for name, figures in (("introduced", culprit.introduced), ("accumulated", culprit.accumulated)):
        if figures is not None and figures.kl is not None:
            yield f"{name}: {distributions(figures)}"


def _outputs(result: Result) -> RenderableType:
    seen = [(row, row.accumulated) for row in result.tensors if row.output and row.accumulated]
    return _facts([(row.state, _plain(f"{row.name}: {phrase(found)}, {distributions(found)}")) for row, found in seen])


def _accumulation(sums: Accumulation) -> RenderableType:
    facts = [("output", f"{sums.output}: relative L2 {number(sums.error)}")]
    if sums.crosses:
        facts.append(
            ("crosses at", f"{sums.crosses}: the first that is beyond the limit while all that it was made from is within")
        )
    for at, one in enumerate(sums.contributors):
        also = f", without those above as well by {number(one.together)}" if at else ""
        text = (
            f"{_nodes(one.region)} -> {one.region.output}: introduced {number(one.introduced)}, without it the output is off by"
        )
        facts.append(("contributor", f"{text} {number(one.without)}{also}"))
    facts.append(("tried", f"the {sums.tried} largest of {sums.regions} errors above the output, each taken out by replay"))
    return _facts([(name, _plain(value)) for name, value in facts])


def _repeats(repeats: Repeats) -> RenderableType:
    facts = [("dumps", f"{len(repeats.dumps)} more of this run: {_some(repeats.dumps)}")]
    told = f"{count(repeats.compared, 'tensor')} compared bit for bit, {len(repeats.differing)} differ"
    facts.append(("tensors", told + (f"; not compared: {_some(list(repeats.not_compared))}" if repeats.not_compared else "")))
    facts.append(("inputs", repeats.inputs))
    if repeats.begins:
        facts.append(("begins at", f"{repeats.begins}: all that it was made from is the same in all runs"))
    for one in repeats.differing[:_SHOWN]:
        size = one.reason or f"max abs {number(one.max_abs)}, relative L2 {number(one.rel_l2)}, {one.mismatched}/{one.elements}"
        facts.append(("differs", f"{one.tensor or one.entry}: {size}, in {one.runs} of {len(repeats.dumps)}"))
    if len(repeats.differing) > _SHOWN:
        facts.append(("", f"and {len(repeats.differing) - _SHOWN} more (see result.json)"))
    return _facts([(name, _plain(value)) for name, value in facts])


def _cells(figures: Figures) -> list[Text]:
    values = (figures.rel_l2, figures.cosine, figures.max_abs, figures.sqnr)
    return [Text(number(value)) for value in values] + [Text(f"{figures.mismatched}/{figures.elements}")]


def _boundary(boundary: Sequence[BoundaryTensor]) -> RenderableType:
    if not boundary:
        return Text("constants only")
    table = _table("tensor", "state", "rel L2", "values from", left=(0, 1, 3))
    for item in boundary[:_SHOWN]:
        error = number(item.figures.rel_l2) if item.figures else "-"
        table.add_row(_plain(item.tensor), Text(item.state), Text(error), _plain(item.source))
    if len(boundary) > _SHOWN:
        table.add_row(Text(f"and {len(boundary) - _SHOWN} more"), "", "", "")
    return table


def _consumed(culprit: Culprit) -> str:
    certificate = culprit.certificate
    readers = ", ".join(certificate.by[:_SHOWN]) + (" ..." if len(certificate.by) > _SHOWN else "")
    words = {
        "consumed": f"yes, the wrong value was read by {readers}" if readers else "yes, the wrong value was read downstream",
        "not-consumed": "no, what follows was computed from the right value" + (f" ({readers})" if readers else ""),
        "not-seen-downstream": "nothing below it in the dump can tell",
    }
    return words[certificate.consumed]


def _crossings(result: Result) -> RenderableType:
    table = _table("tensor", "rel L2", "cosine", "max abs", "SQNR dB", "mismatched", left=(0,))
    for crossing in result.crossings[:_SHOWN]:
        table.add_row(_plain(crossing.tensor), *_cells(crossing.accumulated))
    first = result.crossings[0]
    good = ", ".join(item.tensor for item in first.boundary if item.state == "GOOD") or "the graph's inputs"
    lines: list[RenderableType] = [table]
    if len(result.crossings) > _SHOWN:
        lines.append(Text(f"and {len(result.crossings) - _SHOWN} more (see result.json)"))
    lines.append(_plain(f"good just before {first.tensor}: {good}"))
    return Group(*lines)


def _coverage(coverage: Coverage) -> RenderableType:
    rules = ", ".join(f"{amount} by {rule}" for rule, amount in sorted(coverage.by_rule.items(), key=lambda item: -item[1]))
    seen = f"{coverage.observed} of {coverage.tensors} matched" + (f" ({rules})" if rules else "")
    seen += f"; {coverage.not_dumped} not in the dump, {coverage.ambiguous} ambiguous"
    facts = [("tensors", seen), ("entries", f"{coverage.used} of {coverage.entries} used")]
    named = {"unmatched": coverage.unmatched, "colliding": coverage.colliding, "unreadable": coverage.unreadable}
    facts += [(name, _some(entries)) for name, entries in named.items() if entries]
    if coverage.outputs_missing:
        facts.append(("not dumped", f"graph outputs {_some(coverage.outputs_missing)}"))
    return _facts([(name, _plain(value)) for name, value in facts])


def _run(result: Result) -> RenderableType:
    facts: list[tuple[str, str]] = []
    if result.golden:
        upcast = ", up-cast to float32" if result.golden.upcast else ""
        facts.append(("golden", f"{result.golden.source}: {result.golden.model} ({count(result.golden.nodes, 'node')}{upcast})"))
    if result.target:
        evidence = f" ({result.target.precision_evidence})" if result.target.precision_evidence else ""
        facts.append(
            ("target", f"{result.target.dump}, {count(result.target.entries, 'entry')}, {result.target.precision}{evidence}")
        )
    for given in result.inputs[:_SHOWN]:
        shape = "x".join(map(str, given.shape)) or "scalar"
        checked = f"; the dump's copy: {phrase(given.checked)}" if given.checked else ""
        facts.append(("input", f"{given.name} {given.dtype} {shape} from {given.source}{checked}"))
    if result.policy:
        limits = "".join(f", {name} {number(value)}" for name, value in result.policy.thresholds.items())
        facts.append(("policy", result.policy.name + limits))
    cost = result.search
    mode = "all regions" if cost.scan else "bisection"
    done = f"{count(cost.rounds, 'round')}, {count(cost.passes, 'golden pass')}, {count(cost.replays, 'replay')}"
    rounds = f"{mode}: {count(cost.probes, 'tensor')} compared with the golden, {done}"
    facts.append(("search", rounds + (f", {result.timing['total']:.1f} s" if "total" in result.timing else "")))
    return _facts([(name, _plain(value)) for name, value in facts])


def _not_judged(result: Result) -> list[str]:
    """One line a reason, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for item in result.not_judged:
        by_reason.setdefault(item.reason, []).append(item.tensor)
    ordered = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    return [f"{count(len(tensors), 'tensor')}{f', {reason}' if reason else ''}: {_some(tensors)}" for reason, tensors in ordered]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _plain(line: str) -> Text:
    return Text(visible(line), overflow="fold")


def _facts(facts: Iterable[tuple[str, RenderableType]]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=11, no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(Text(name), value)
    return grid


def _table(*titles: str, left: tuple[int, ...] = (0,)) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for position, title in enumerate(titles):
        text_column = position in left
        table.add_column(Text(title), justify="left" if text_column else "right", overflow="fold", no_wrap=not text_column)
    return table


def _list(lines: Sequence[str], limit: int = _SHOWN) -> RenderableType:
    shown = list(lines[:limit])
    if len(lines) > limit:
        shown.append(f"and {len(lines) - limit} more (see result.json)")
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for line in shown:
        grid.add_row(Text("-"), _plain(line))
    return grid
