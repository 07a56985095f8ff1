"""A dump as a list of entries: what is there, under which names, in which role; values are read on demand.

The key of an entry is its file's place in the folder ("npy/conv1.npy"), with "::member" behind it for an array in a container
("tensors.npz::conv1"); where the dump is one single container, the key is the bare member ("conv1"). `by_key` also takes a
unique name.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from bisect_align.dumps import buffers, manifest, names, npy, npz, pb, polygraphy, raw, roles, safetensors, text
from bisect_align.dumps.entry import Catalogue, Entry, Problem, Role
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

Places: TypeAlias = Mapping[Path, PurePosixPath]

RAW = frozenset({".bin", ".raw", ".dat", ".data"})
SIDECARS = frozenset({names.MAP_FILE, "error_analysis.txt"})
GRAPHS = frozenset({".param", ".xml", ".onnx"})
"""Model files; a raw file named like one ("m.param", "m.bin") or after one ("m.onnx.data") holds its weights."""
HINT = "a dump is a folder, or one .npz, .safetensors, .npy, .pb or manifest .json file"


def _loose(reader: Callable[[Path], Piece | None]) -> Callable[[Path], Listing | None]:
    def listing(path: Path) -> Listing | None:
        piece = reader(path)
        return None if piece is None else Listing((piece,))

    return listing


READERS: dict[str, Callable[[Path], Listing | None]] = {
    ".npy": _loose(npy.piece),
    ".npz": npz.listing,
    ".pb": _loose(pb.piece),
    ".safetensors": safetensors.listing,
    ".txt": _loose(text.piece),
    **dict.fromkeys(RAW, _loose(raw.piece)),
}


@dataclass(slots=True)
class _Found:
    pieces: list[Piece] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ignored: list[PurePosixPath] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, listing: Listing) -> None:
        self.pieces += listing.pieces
        self.faults += listing.faults
        self.notes += listing.notes


def catalogue(path: Path) -> Catalogue:
    """List a dump: a folder, or a single file of any known format. Raises DumpError where nothing can be read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DumpError(f"cannot be read: {(error.strerror or '').lower()}", where=str(path), hint=HINT) from error
    root = path if stat.S_ISDIR(mode) else path.parent
    files, faults = _walk(path) if stat.S_ISDIR(mode) else ({path: names.relative(path, root)}, [])
    found = _Found(faults=faults)
    kept, notes = roles.one_run(list(files.values()))
    found.notes += notes
    chosen = set(kept)
    files = {file: place for file, place in files.items() if place in chosen}
    _read(files, found)
    entries = _entries(files, root, found)
    problems = tuple(_problem(fault, root) for fault in found.faults)
    if not entries:
        raise _nothing(path, files, problems)
    return Catalogue(path, tuple(entries), problems, _summary(found.ignored), tuple(found.notes))


def by_key(found: Catalogue) -> dict[str, Entry]:
    """What a map file may call the entries: every key, and every name that only one entry has."""
    counts = Counter(name for entry in found.entries for name in entry.names)
    unique = {name: entry for entry in found.entries for name in entry.names if counts[name] == 1}
    return {**unique, **{entry.key: entry for entry in found.entries}}


def _nothing(path: Path, files: Places, problems: tuple[Problem, ...]) -> DumpError:
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
        return DumpError(f"nothing in it can be read: {first.source.name} {first.reason}{more}", where=str(path), hint=HINT)
    what = "holds no tensors that can be read" if files else "is empty"
    return DumpError(what, where=str(path), hint=HINT)


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


def _read(files: Places, found: _Found) -> None:
    claimed: set[Path] = set()
    for path in files:
        if path.suffix.lower() == ".json":
            _read_json(path, files, found, claimed)
    graphs = {path.with_suffix("") for path in files if path.suffix.lower() in GRAPHS}
    for path, place in files.items():
        ending = path.suffix.lower()
        if path in claimed or ending == ".json":
            continue
        weights = ending in RAW and (path.with_suffix("") in graphs or path.with_suffix("") in files)
        if place.name in SIDECARS or weights:
            found.ignored.append(place)
            continue
        try:
            listing = READERS.get(ending, _sniffed)(path)
        except DumpError as error:
            found.faults.append(Fault(path, error.what))
            continue
        if listing is None:
            found.ignored.append(place)
        else:
            found.add(listing)


def _sniffed(path: Path) -> Listing | None:
    """Files without a known ending: .npy and .npz by their first bytes, else none."""
    start = buffers.head(path, len(npy.MAGIC))
    if start.startswith(npy.MAGIC):
        return Listing((npy.piece(path),))
    return npz.listing(path) if start.startswith(npz.MAGIC) and path.suffix == "" else None


def _read_json(path: Path, files: Places, found: _Found, claimed: set[Path]) -> None:
    document: Any = None
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        found.faults.append(Fault(path, f"cannot be read: {(error.strerror or '').lower()}"))
        return
    except (ValueError, RecursionError):
        if path.name == "manifest.json":
            found.faults.append(Fault(path, "is no JSON"))
            return
    try:
        tensors = manifest.items(document)
        if tensors is not None:
            listing = manifest.listing(path, tensors)
            claimed |= {piece.source for piece in listing.pieces} | {fault.source for fault in listing.faults}
            found.add(listing)
        elif polygraphy.is_run(document):
            found.add(polygraphy.listing(path, document))
        else:
            found.ignored.append(files[path])
    except DumpError as error:
        found.faults.append(Fault(path, error.what))


def _entries(files: Places, root: Path, found: _Found) -> list[Entry]:
    seen = [roles.Seen(names.relative(piece.source, root), piece.format, piece.member, piece.reference) for piece in found.pieces]
    dropped, notes = roles.twins(seen)
    found.notes += notes
    kept = [position for position in range(len(seen)) if position not in dropped]
    pieces, seen = [found.pieces[position] for position in kept], [seen[position] for position in kept]
    given, notes = roles.roles(seen)
    found.notes += notes
    naming = _Naming.of(files, pieces, seen, given)
    single = len({piece.source for piece in pieces}) == 1 and all(piece.member is not None for piece in pieces)
    entries: list[Entry] = []
    taken: set[str] = set()
    for position, (piece, item, role) in enumerate(zip(pieces, seen, given, strict=True)):
        key = naming.key(piece, item, single)
        if key in taken:
            key = f"{key}::{piece.name or position}"
        if key in taken:
            found.faults.append(Fault(piece.source, "stands twice in the dump", piece.name))
            continue
        taken.add(key)
        entry = Entry(
            key=key,
            names=naming.names(position, piece, item),
            source=piece.source,
            format=piece.format,
            nbytes=piece.nbytes,
            dtype=piece.dtype,
            shape=piece.shape,
            role=role,
            quant=piece.quant,
            order=piece.order if piece.order is not None else naming.order.get(position),
            reader=piece.reader,
        )
        entries.append(entry)
    return entries


@dataclass(frozen=True, slots=True)
class _Naming:
    """What names depend on beyond the file itself: the folder that all target files share, equal stems, counters, a map file."""

    base: PurePosixPath
    stems: Counter[str]
    order: dict[int, int]
    layers: dict[int, str]

    @classmethod
    def of(cls, files: Places, pieces: list[Piece], seen: list[roles.Seen], given: list[Role]) -> _Naming:
        own = [p for p, item in enumerate(seen) if given[p] is Role.TARGET and item.member is None]
        stems = Counter(names.stem(seen[p].place) for p in own)
        order: dict[int, int] = {}
        folders: defaultdict[PurePosixPath, list[int]] = defaultdict(list)
        for p in own:
            folders[seen[p].place.parent].append(p)
        for group in folders.values():
            numbers = names.counters([names.stem(seen[p].place) for p in group])
            order |= {p: numbers[text] for p in group if (text := names.stem(seen[p].place)) in numbers}
        layers: dict[int, str] = {}
        for path, place in files.items():
            if place.name == names.MAP_FILE:
                table = names.mapped(path.read_text(errors="replace"))
                for p, item in enumerate(seen):
                    if item.member is None and item.place.is_relative_to(place.parent) and names.stem(item.place) in table:
                        layers[p], order[p] = table[names.stem(item.place)]
        return cls(names.shared_folder([seen[p].place for p in own]), stems, order, layers)

    def key(self, piece: Piece, item: roles.Seen, single: bool) -> str:
        if piece.member is None:
            return str(item.place)
        return names.printable(piece.member if single else f"{item.place}::{piece.member}")

    def names(self, position: int, piece: Piece, item: roles.Seen) -> tuple[str, ...]:
        if piece.member is not None:
            return (names.printable(piece.name or piece.member),)
        inside = [names.printable(name) for name in (piece.name, self.layers.get(position)) if name]
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
