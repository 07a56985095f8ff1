"""Whose dump is this? The marks of every known convention, tried on the names in a folder; no values are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

from bisect_align.dumps.convention import GENERIC, Convention, Mark, known
from bisect_align.dumps.names import stem

STRENGTHS = ("hint", "pattern", "marker")


@dataclass(frozen=True, slots=True)
class Folder:
    """What there is to recognise. containers: place of a file of several arrays -> their keys; formats: that it holds."""

    places: Sequence[PurePosixPath]
    containers: Mapping[PurePosixPath, Sequence[str]] = field(default_factory=dict)
    formats: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """All places, a line each, with a slash before and after: what globs are searched in."""
        return "".join(f"/{place}\n" for place in self.places)

    @property
    def keys(self) -> list[str]:
        """Keys of arrays in containers, stems of the other files that may hold one (logs, scripts and tables do not count)."""
        loose = [stem(place) for place in self.places if place not in self.containers and _may_be_one(place)]
        inside = [key for keys in self.containers.values() for key in keys]
        return [*loose, *inside]


@dataclass(frozen=True, slots=True)
class Recognised:
    """evidence: why this convention, for people; "" where nothing speaks for any. rivals: others that fit as well."""

    convention: Convention
    evidence: str = ""
    rivals: tuple[str, ...] = ()


def _may_be_one(place: PurePosixPath) -> bool:
    return place.suffix != ".json" and (place.suffix == "" or stem(place) != place.name)


def recognise(folder: Folder, conventions: Sequence[Convention] | None = None) -> Recognised:
    """The convention whose strongest mark the folder bears; the generic one where none does, or where several do equally.

    conventions: those to choose from (default: all of the package); they include the generic one.
    """
    choice = known() if conventions is None else conventions
    generic = next(one for one in choice if one.name == GENERIC)
    text, keys = folder.text, folder.keys
    found: list[tuple[int, Convention, str]] = []
    for one in choice:
        hits = [(STRENGTHS.index(mark.strength), why) for mark in one.recognise if (why := _evidence(mark, folder, text, keys))]
        if hits:
            strength, why = max(hits, key=lambda hit: hit[0])
            found.append((strength, one, why))
    if not found:
        return Recognised(generic)
    best = max(strength for strength, _, _ in found)
    leading = [(one, why) for strength, one, why in found if strength == best]
    if len(leading) > 1:
        return Recognised(generic, rivals=tuple(one.name for one, _ in leading))
    return Recognised(*leading[0])


def hits(glob: str, text: str) -> str | None:
    """The first place in `text` (one a line, each behind a slash) whose last parts fit the glob; "*" stays within a folder, "**"
    stands for any number of folders."""
    pattern, literal = _glob(glob)
    found = pattern.search(text) if literal in text else None
    return found["place"].lstrip("/") if found else None


def all_hits(glob: str, text: str) -> list[str]:
    """All such places."""
    pattern, literal = _glob(glob)
    return [found["place"].lstrip("/") for found in pattern.finditer(text)] if literal in text else []


@cache
def _glob(glob: str) -> tuple[re.Pattern[str], str]:
    """The pattern of whole lines, and the longest text that every hit holds: the look-up that rules nearly all globs out."""
    parts = re.split(r"(\*\*/|\*|\?|\[!?[^\]]+\])", glob)
    meaning = {"**/": r"(?:[^/\n]+/)*", "*": r"[^/\n]*", "?": r"[^/\n]"}
    body = "".join(
        meaning.get(part, "[^" + part[2:] if part.startswith("[!") else part) if odd else re.escape(part)
        for part, odd in ((part, position % 2) for position, part in enumerate(parts))
    )
    return re.compile(rf"^(?P<place>(?:/[^/\n]+)*?/{body})$", re.MULTILINE), max(parts[::2], key=len)


def _evidence(mark: Mark, folder: Folder, text: str, keys: Sequence[str]) -> str:
    """Why the mark holds, in words; "" where it does not."""
    places: list[str] = []
    for glob in mark.files:
        place = hits(glob, text)
        if place is None:
            return ""
        places.append(place)
    if any(kind not in folder.formats for kind in mark.formats):
        return ""
    fits = ""
    if mark.keys:
        pattern = re.compile(mark.keys)
        count = sum(pattern.search(key) is not None for key in keys)
        if not count or count < mark.share * len(keys):
            return ""
        fits = f"{count} of {len(keys)} names fit"
    details = ", ".join(dict.fromkeys([*places[:2], *([fits] if fits else [])]))
    return f"{mark.why} ({details})" if details else mark.why
