"""What the places and names of a dump's files say without being told: which run, which sample, which twin, whose value."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from bisect_align.dumps.entry import Role
from bisect_align.dumps.names import stem
from bisect_align.errors import DumpError

_Find: TypeAlias = Callable[[PurePosixPath], Iterable[tuple[tuple[str, ...], str]]]
"""(what the sample or run belongs to, its name) for each of a place's folders that is one."""

REFERENCES = frozenset({"golden", "reference", "references", "ref", "expected", "desired"})
SAMPLE = re.compile(r"(?P<word>result|sample|test_data_set)_?(?P<k>\d{1,6})", re.IGNORECASE)
NUMBER = re.compile(r"(?P<word>)(?P<k>\d{1,6})")
RUN = re.compile(r"\d{14}|\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")
LISTS = frozenset({"inputs", "outputs", "input", "output"})
EXPECTED = ("_desired", "_expected", "_golden")
ACTUAL = "_actual"
FORMATS = ("pb", "npz", "safetensors", "pt", "npy", "ieb", "polygraphy", "raw", "text")
"""Best first: what carries a name, then a type and shape, then all digits."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A listed array: the place of its file in the dump, its format, and its name in the container (None: a loose file)."""

    place: PurePosixPath
    format: str
    member: str | None = None
    reference: bool = False


def one_run(places: Sequence[PurePosixPath], sample: int, told: _Find) -> tuple[list[PurePosixPath], list[str]]:
    """Files of the newest run and of one sample (counted from 0), with a note for what was left out.

    Runs are sibling folders named after a time; samples are sibling folders `Result_<k>`, `sample_<k>`, `test_data_set_<k>`,
    numbers below `outputs` and `inputs`, or what the convention has `told`. Raises DumpError where there is no such sample.
    """
    notes: list[str] = []
    kept = _one_of(list(places), _run_of, max, "runs; the newest is read", notes)

    def find(place: PurePosixPath) -> list[tuple[tuple[str, ...], str]]:
        return list(_sample_of(place)) or list(told(place))

    def choose(names: set[str]) -> str:
        if sample >= len(names):
            raise DumpError(f"holds {len(names)} samples, so none has the number {sample}", hint="they are counted from 0")
        return sorted(names, key=_number)[sample]

    before = len(notes)
    which = "the first" if sample == 0 else f"number {sample}, counted from 0,"
    kept = _one_of(kept, find, choose, f"samples; {which} is read", notes)
    if sample and len(notes) == before:
        raise DumpError(f"holds no samples to choose from, so none has the number {sample}")
    return kept, notes


def _one_of(
    places: list[PurePosixPath],
    find: _Find,
    choose: Callable[[set[str]], str],
    what: str,
    notes: list[str],
) -> list[PurePosixPath]:
    names: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for place in places:
        for group, name in find(place):
            names[group].add(name)
    chosen = {group: choose(found) for group, found in names.items() if len(found) > 1}
    for group, name in sorted(chosen.items()):
        folder = "/".join(group[:-1]) or "the dump"
        notes.append(f"{folder} holds {len(names[group])} {what}: {name}")
    return [place for place in places if all(chosen.get(group, name) == name for group, name in find(place))]


def _run_of(place: PurePosixPath) -> Iterable[tuple[tuple[str, ...], str]]:
    for depth, part in enumerate(place.parts[:-1]):
        if RUN.fullmatch(part):
            yield (*place.parts[:depth], f"run/{len(part)}"), part


def _sample_of(place: PurePosixPath) -> Iterable[tuple[tuple[str, ...], str]]:
    for depth, part in enumerate(place.parts[:-1]):
        listed = depth > 0 and place.parts[depth - 1].lower() in LISTS
        found = SAMPLE.fullmatch(part) or (NUMBER.fullmatch(part) if listed else None)
        if found:
            yield (*place.parts[:depth], f"sample/{found['word'].lower()}"), part
    if place.parent.name.lower() in ("inputs", "input") and NUMBER.fullmatch(stem(place)):
        yield (*place.parts[:-1], f"sample{place.suffix}"), stem(place)


def _number(name: str) -> tuple[int, str]:
    return int("".join(re.findall(r"\d+$", name)) or 0), name


def twins(seen: Sequence[Seen]) -> tuple[set[int], list[str]]:
    """Positions of entries that repeat another one in a poorer format: `X.txt` beside `X.bin`, or above `npy/X.npy`."""
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for position, item in enumerate(seen):
        if item.member is None:
            folder = item.place.parent
            home = folder.parent if folder.name in ("npy", "bin", "txt") else folder
            groups[str(home), stem(item.place)].append(position)
    dropped: set[int] = set()
    for members in groups.values():
        best = min(FORMATS.index(seen[position].format) for position in members)
        dropped |= {position for position in members if FORMATS.index(seen[position].format) > best}
    texts = sum(seen[position].format == "text" for position in dropped)
    notes = [f"{texts} text twins of binary files were left out"] if texts else []
    if len(dropped) > texts:
        notes.append(f"{len(dropped) - texts} raw or second copies of files that carry a header were left out")
    return dropped, notes


def roles(seen: Sequence[Seen]) -> tuple[list[Role], list[str]]:
    """The role of each entry, and notes on folders that are taken for references."""
    found = [Role.REFERENCE if item.reference else Role.TARGET for item in seen]
    notes: list[str] = []
    folders = _reference_folders(seen)
    for folder, why in sorted(folders.items()):
        notes.append(f"{'/'.join(folder)}/ is taken for the vendor's reference, not for the target ({why})")
    names = {(item.place, item.member if item.member is not None else stem(item.place)) for item in seen}
    loose = {(item.place.parent, stem(item.place)) for item in seen if item.member is None}
    lists = {item.place.parts[:depth] for item in seen for depth in range(1, len(item.place.parts))}
    desired = 0
    for position, item in enumerate(seen):
        parts = item.place.parts
        name = item.member if item.member is not None else stem(item.place)
        if any(parts[:depth] in folders for depth in range(1, len(parts))):
            found[position] = Role.REFERENCE
        elif ending := next((ending for ending in EXPECTED if name.endswith(ending)), ""):
            twin = name.removesuffix(ending) + ACTUAL
            if (item.place, twin) in names or (item.member is None and (item.place.parent, twin) in loose):
                found[position] = Role.REFERENCE
                desired += 1
        elif _is_listed_input(parts, lists):
            found[position] = Role.INPUT
    if desired:
        notes.append(f"{desired} entries beside an `{ACTUAL}` twin are taken for the vendor's reference")
    return found, notes


def _is_listed_input(parts: tuple[str, ...], folders: set[tuple[str, ...]]) -> bool:
    """Below `inputs/` that has an `outputs/` beside it."""
    return any(
        part.lower() in ("inputs", "input") and (*parts[:depth], part.lower().replace("in", "out")) in folders
        for depth, part in enumerate(parts[:-1])
    )


def _reference_folders(seen: Sequence[Seen]) -> dict[tuple[str, ...], str]:
    """Folders named like a reference beside a sibling that holds the same files."""
    stems: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for item in seen:
        parts = item.place.parts
        for depth in range(1, len(parts)):
            stems[parts[:depth]].add(item.member if item.member is not None else stem(item.place))
    found: dict[tuple[str, ...], str] = {}
    for folder, held in stems.items():
        if folder[-1].lower() not in REFERENCES:
            continue
        siblings = [other for other in stems if other[:-1] == folder[:-1] and other != folder]
        same = [other for other in siblings if 2 * len(stems[other] & held) >= min(len(held), len(stems[other]))]
        if same:
            found[folder] = f"beside {same[0][-1]}/"
    return found
