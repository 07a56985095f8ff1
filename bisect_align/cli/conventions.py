"""The toolchains whose dumps are known: a list of them, or all that is known of one, with who says so."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bisect_align.dumps.convention import Convention

_WIDEST = 100


def conventions(name: str | None = None, /) -> int:
    """List the toolchains whose dumps are known and how to make each dump, or show all that is known of one.

    Each fact has a confidence: measured (seen in runs of our own), vendor (in the vendor's source or manual), secondary (a user's
    script or log), unverified (nobody looked it up).

    Parameters
    ----------
    name
        One convention, or the path of a .toml file of your own: shown in full, or its first mistake.
    """
    from bisect_align.cli.output import say
    from bisect_align.dumps.convention import known, load
    from bisect_align.result.escape import visible

    lines = _overview(known()) if name is None else _whole(load(name))
    width = min(shutil.get_terminal_size().columns, _WIDEST) if sys.stdout.isatty() else _WIDEST
    for indent, text in lines:
        say(_wrapped(visible(text), indent, width))
    return 0


def _wrapped(text: str, indent: int, width: int) -> str:
    """Words in lines; a command or pattern, which is indented further than text, stays in one piece."""
    if indent >= 6 or not text:
        return " " * indent + text
    return textwrap.fill(
        text,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _overview(known: tuple[Convention, ...]) -> Iterator[tuple[int, str]]:
    for one in known:
        yield 0, f"{one.name}: {one.title} [{one.confidence}]"
        yield 2, one.make.text
        for command in one.make.commands:
            yield 6, command
        yield 0, ""
    yield (
        0,
        "All that is known of one: bisect-align conventions NAME. The word in brackets is the confidence of most of its facts.",
    )


def _whole(one: Convention) -> Iterator[tuple[int, str]]:
    def by(source: str) -> str:
        return f"[{one.sources[source].confidence}: {source}]"

    yield 0, f"{one.name}: {one.title}"
    yield 0, ""
    yield 0, f"How to make the dump {by(one.make.source)}"
    yield 2, one.make.text
    for command in one.make.commands:
        yield 6, command
    if one.recognise:
        yield 0, ""
        yield 0, "How its folder is recognised"
    for mark in one.recognise:
        yield 2, f"{mark.why} {by(mark.source)}"
        for glob in mark.files:
            yield 6, glob
        if mark.keys:
            yield 6, mark.keys
    if one.entries or one.sidecars:
        yield 0, ""
        yield 0, f"What is read (container: {one.container})"
    for sidecar in one.sidecars:
        yield 2, f"beside the values: {sidecar.file} ({sidecar.format}) {by(sidecar.source)}"
    for pattern in one.entries:
        extra = [pattern.role, *([pattern.dtype] if pattern.dtype else []), *(["integer codes"] if pattern.codes else [])]
        extra += [f"where {pattern.beside} is there"] if pattern.beside else []
        yield 2, f"{', '.join(extra)} {by(pattern.source)}"
        yield 6, pattern.pattern
    if one.suffixes:
        yield 0, ""
        yield 0, "Endings of names"
    for suffix in one.suffixes:
        kind = "" if suffix.decoration else "another value, not the tensor: "
        yield 2, f"{suffix.pattern}  {kind}{suffix.text} {by(suffix.source)}"
    yield 0, ""
    yield 0, "What is known"
    for title, part, value in (
        ("names", one.names, one.names and ", ".join(one.names.rules)),
        ("types", one.types, ""),
        ("layout (a hint: values are laid out by what fits)", one.layout, one.layout and one.layout.order),
        ("fused groups are named after (a hint)", one.fused, one.fused and one.fused.named),
        ("samples", one.samples, one.samples and one.samples.folder),
    ):
        if part is not None:
            yield 2, f"{title}: {f'{value}; ' if value else ''}{part.text} {by(part.source)}"
    if one.quantisation:
        yield 2, f"quantisation: {one.quantisation.real}; {one.quantisation.scale} {by(one.quantisation.source)}"
    for fact in one.facts:
        yield 2, f"{fact.text} {by(fact.source)}"
    yield 0, ""
    yield 0, "Sources"
    for key, source in one.sources.items():
        yield 2, f"{key}: {source.title} [{source.confidence}]"
