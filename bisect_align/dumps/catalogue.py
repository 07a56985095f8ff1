"""A dump as a list of entries: what is there, under which names, in which role; values are read on demand.

The key of an entry is its file's place in the folder ("npy/conv1.npy"), with "::member" behind it for an array in a container
("tensors.npz::conv1"); where the dump is one single container, the key is the bare member ("conv1"). `by_key` also takes a
unique name.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bisect_align.dumps import names, recognise, roles
from bisect_align.dumps.convention import GENERIC, Convention
from bisect_align.dumps.entry import Catalogue, Entry, Problem, Role
from bisect_align.dumps.piece import Fault, Piece
from bisect_align.dumps.reading import Files, Found, Places
from bisect_align.dumps.recognise import Folder, Recognised
from bisect_align.dumps.telling import Teller, Told
from bisect_align.errors import DumpError

HINT = "a dump is a folder, or one .npz, .safetensors, .npy, .pb, .pt or manifest .json file"


def catalogue(path: Path, convention: Convention | None = None, sample: int = 0) -> Catalogue:
    """List a dump: a folder, or a single file of any known format. Raises DumpError where nothing can be read.

    convention: whose rules to read it by; None: the one whose marks it bears, said in the notes. sample: which one is read of a
    dump of several, counted from 0.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DumpError(f"cannot be read: {(error.strerror or '').lower()}", where=str(path), hint=HINT) from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):  # a pipe would be waited for, a device never ends
        raise DumpError("is neither a folder nor a regular file", where=str(path), hint=HINT)
    root = path if stat.S_ISDIR(mode) else path.parent
    files, faults = _walk(path) if stat.S_ISDIR(mode) else ({path: names.relative(path, root)}, [])
    reader = Files()
    choice = Recognised(convention) if convention is not None else recognise.recognise(_folder(files, reader))
    notes = [_said(choice, given=convention is not None)]
    teller = Teller(choice.convention, files)
    kept = teller.newest(list(files.values()))
    kept, said = roles.one_run(kept, sample, teller.samples)
    chosen = {place for place in kept if not teller.skipped(place)}
    skipped = [place for place in kept if place not in chosen]
    files = {file: place for file, place in files.items() if place in chosen}
    found = reader.read(files, teller.sidecars, teller.formats())
    found.faults[:0] = faults
    found.ignored += skipped
    found.notes[:0] = [*notes, *said, *teller.notes]
    entries = _entries(root, found, teller)
    problems = tuple(_problem(fault, root) for fault in found.faults)
    if not entries:
        raise _nothing(path, files, problems, choice.convention)
    told = choice.convention
    return Catalogue(
        path,
        tuple(entries),
        problems,
        _summary(found.ignored),
        tuple(note for note in found.notes if note),
        told.name,
        told.rewrites,
    )


def _folder(files: Places, reader: Files) -> Folder:
    containers, formats = reader.containers(files)
    return Folder(list(files.values()), containers, formats)


def _said(choice: Recognised, *, given: bool) -> str:
    """One sentence on the convention; "" where the dump bears no marks and none was given: nothing is read in a special way."""
    if choice.rivals:
        rivals = ", ".join(choice.rivals)
        return f"the dump looks like one of {rivals} alike and is read as generic; name one with --convention"
    if given:
        return f"read by the convention {choice.convention.name} ({choice.convention.title}), as asked"
    return (
        f"read by the convention {choice.convention.name} ({choice.convention.title}): {choice.evidence}"
        if choice.evidence
        else ""
    )


def by_key(found: Catalogue) -> dict[str, Entry]:
    """What a map file may call the entries: every key, and every name that only one entry has."""
    counts = Counter(name for entry in found.entries for name in entry.names)
    unique = {name: entry for entry in found.entries for name in entry.names if counts[name] == 1}
    return {**unique, **{entry.key: entry for entry in found.entries}}


def _nothing(path: Path, files: Places, problems: tuple[Problem, ...], convention: Convention) -> DumpError:
    hint = HINT if convention.name == GENERIC else f"{convention.title}: {convention.make.text}"
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
        return DumpError(f"nothing in it can be read: {first.source.name} {first.reason}{more}", where=str(path), hint=hint)
    what = "holds no tensors that can be read" if files else "is empty"
    return DumpError(what, where=str(path), hint=hint)


def _walk(root: Path) -> tuple[dict[Path, PurePosixPath], list[Fault]]:
    """Regular files below `root`, sorted by place; folders behind links are not entered. What cannot be reached is a fault."""
    faults: list[Fault] = []

    def refused(error: OSError) -> None:
        faults.append(Fault(Path(error.filename or root), f"cannot be read: {(error.strerror or '').lower()}"))

    found: dict[Path, PurePosixPath] = {}
    for folder, _, files in os.walk(root, onerror=refused):
        for name in files:
            path = Path(folder) / name
            try:
                if stat.S_ISREG(path.stat().st_mode):
                    found[path] = names.relative(path, root)
            except OSError as error:
                error.filename = str(path)
                refused(error)
    return dict(sorted(found.items(), key=lambda item: item[1].parts)), faults


def _entries(root: Path, found: Found, teller: Teller) -> list[Entry]:
    places = [names.relative(piece.source, root) for piece in found.pieces]
    seen = [
        roles.Seen(place, piece.format, piece.member, piece.reference) for piece, place in zip(found.pieces, places, strict=True)
    ]
    dropped, notes = roles.twins(seen)
    found.notes += notes
    spoken = [teller.tell(piece, place) for piece, place in zip(found.pieces, places, strict=True)]
    dropped |= _codes(spoken, places, dropped, found)
    kept = [position for position in range(len(seen)) if position not in dropped]
    pieces, seen, told = [spoken[p][0] for p in kept], [seen[p] for p in kept], [spoken[p][1] for p in kept]
    given, notes = roles.roles(seen)
    found.notes += notes
    given = [one.role or role for one, role in zip(told, given, strict=True)]
    naming = _Naming.of(seen, given)
    single = len({piece.source for piece in pieces}) == 1 and all(piece.member is not None for piece in pieces)
    entries: list[Entry] = []
    taken: set[str] = set()
    for position, (piece, item, role, one) in enumerate(zip(pieces, seen, given, told, strict=True)):
        key = naming.key(piece, item, single)
        if key in taken:
            key = f"{key}::{piece.name or position}"
        if key in taken:
            found.faults.append(Fault(piece.source, "stands twice in the dump", piece.name))
            continue
        taken.add(key)
        orders = (one.order, piece.order, naming.order.get(position))
        entry = Entry(
            key=key,
            names=tuple(dict.fromkeys((*one.names, *naming.names(piece, item)))),
            source=piece.source,
            format=piece.format,
            nbytes=piece.nbytes,
            dtype=piece.dtype,
            shape=piece.shape,
            role=role,
            quant=piece.quant,
            order=next((order for order in orders if order is not None), None),
            decoration=one.decoration,
            whole=one.whole,
            view=one.view,
            step=piece.step,
            reader=piece.reader,
        )
        entries.append(entry)
    return entries


def _codes(told: Sequence[tuple[Piece, Told]], places: Sequence[PurePosixPath], dropped: set[int], found: Found) -> set[int]:
    """Positions of integer codes without a scale, of which the dump holds the real values as well."""
    real = {(one.names[:1], places[p].parent) for p, (_, one) in enumerate(told) if not one.codes and p not in dropped}
    codes = {p for p, (_, one) in enumerate(told) if one.codes and one.names and (one.names[:1], places[p].parent) in real}
    if codes - dropped:
        found.notes.append(f"{len(codes - dropped)} files of integer codes were left out: their real values are there")
    return codes


@dataclass(frozen=True, slots=True)
class _Naming:
    """What names depend on beyond the file itself: the folder that all target files share, equal stems, counters."""

    base: PurePosixPath
    stems: Counter[str]
    order: dict[int, int]

    @classmethod
    def of(cls, seen: list[roles.Seen], given: list[Role]) -> _Naming:
        own = [p for p, item in enumerate(seen) if given[p] is Role.TARGET and item.member is None]
        stems = Counter(names.stem(seen[p].place) for p in own)
        order: dict[int, int] = {}
        folders: defaultdict[PurePosixPath, list[int]] = defaultdict(list)
        for p in own:
            folders[seen[p].place.parent].append(p)
        for group in folders.values():
            numbers = names.counters([names.stem(seen[p].place) for p in group])
            order |= {p: numbers[text] for p in group if (text := names.stem(seen[p].place)) in numbers}
        return cls(names.shared_folder([seen[p].place for p in own]), stems, order)

    def key(self, piece: Piece, item: roles.Seen, single: bool) -> str:
        if piece.member is None:
            return str(item.place)
        return names.printable(piece.member if single else f"{item.place}::{piece.member}")

    def names(self, piece: Piece, item: roles.Seen) -> tuple[str, ...]:
        if piece.member is not None:
            return (names.printable(piece.name or piece.member),)
        inside = [names.printable(piece.name)] if piece.name else []
        return tuple(dict.fromkeys((*inside, *names.file_names(item.place, self.base, self.stems))))


def _problem(fault: Fault, root: Path) -> Problem:
    place = names.relative(fault.source, root)
    called = dict.fromkeys((*([names.printable(fault.name)] if fault.name else []), names.stem(place), names.path_name(place)))
    return Problem(fault.source, tuple(called), fault.reason)


def _summary(ignored: list[PurePosixPath]) -> tuple[str, ...]:
    """One line an ending: how many files, and the first few of them."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for place in ignored:
        groups[place.suffix.lower() or "no ending"].append(str(place))
    lines = []
    for ending, places in sorted(groups.items()):
        shown = ", ".join(sorted(places)[:3]) + (", …" if len(places) > 3 else "")
        lines.append(f"{len(places)} {ending} ({shown})")
    return tuple(lines)
