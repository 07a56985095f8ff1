"""The match as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bisect_align.report.figures import number
from bisect_align.result.escape import visible
from bisect_align.result.match import Leftover, MatchReport, MatchRow

_MEANING = {
    "alias": "named after another tensor of its fused group; its value belongs here",
    "name-only": "too few different values to prove anything; its name alone puts it here",
    "unsupported": "its name puts it here, but its value does not follow from the entries above it: a wrong operator looks so, and a "
    "wrong name, input or sample too. A run (the same command without `match`) judges which; if the name is wrong, mend it with --map",
    "wrong-shape": "its name puts it here, but no layout gives its shape: a wrong operator looks so, and a wrong name too. A run judges "
    "which; if the name is wrong, mend it with --map",
}
_SHOWN = 8  # lines of a list of leftovers before "and n more": --json and --write-map hold them all


def report(found: MatchReport, *, whole: bool = True) -> Group:
    """Counts first, then the table (whole), then what is left over."""
    return Group(*_parts(found, whole))


def headline(found: MatchReport) -> Text:
    """How many tensors of the model the dump holds."""
    counts = ", ".join(f"{count} {name}" for name, count in found.classes.items() if count)
    return Text(visible(f"{len(found.rows)} of {found.tensors} tensors matched from {found.entries} entries: {counts}"))


def _parts(found: MatchReport, whole: bool) -> Iterator[RenderableType]:
    yield headline(found)
    yield Text(
        f"An entry fits where its relative L2 from the predicted value is at most {found.tolerance:g} (learnt from the dump)."
    )
    if whole:
        yield Text()
        yield _table(found.rows)
        if legend := [(status, text) for status, text in _MEANING.items() if any(row.status == status for row in found.rows)]:
            yield Text()
            yield Group(*(Text(f"{status}: {text}.") for status, text in legend))
    sections = (
        ("Stale?", found.stale),
        ("Colliding names", found.colliding),
        ("Unreadable", found.unreadable),
        ("Entries that fit nothing", found.unmatched),
        ("Entries that repeat another", found.twins),
        ("Tensors without an entry", found.missing),
    )
    for title, items in sections:
        if items:
            yield Text()
            yield Text(f"{title} ({len(items)})", style="bold")
            yield Padding(_list(items), (0, 0, 0, 2))
    if found.notes:
        yield Text()
        yield Text("Notes", style="bold")
        yield Padding(Group(*(Text(f"- {visible(note)}") for note in found.notes)), (0, 0, 0, 2))


def _table(rows: Sequence[MatchRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("tensor\n  entry", overflow="fold")
    table.add_column("how", no_wrap=True)
    table.add_column("off by", justify="right", no_wrap=True)
    for row in rows:
        how = row.rule if row.status == "named" else f"{row.rule}, {row.status}"
        if row.fix not in ("", "id"):
            how += f", {row.fix}"
        table.add_row(Text(f"{visible(row.tensor)}\n  {visible(row.entry)}"), Text(how), Text(number(row.residual)))
    return table


def _list(items: Sequence[Leftover]) -> Group:
    lines = [Text(f"- {visible(item.name)}: {visible(item.reason)}") for item in items[:_SHOWN]]
    if len(items) > _SHOWN:
        lines.append(Text(f"- and {len(items) - _SHOWN} more (--json lists all)"))
    return Group(*lines)
