"""A convention applied to the files of a dump: what each place or key says of the name, the role, the type, the sample, the run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from bisect_align.dumps import buffers, dtypes, raw, sidecars
from bisect_align.dumps.convention import Convention, Pattern, Sidecar
from bisect_align.dumps.entry import Role
from bisect_align.dumps.names import printable, stem
from bisect_align.dumps.piece import Piece, reinterpreted
from bisect_align.dumps.recognise import Folder, all_hits, hits
from bisect_align.errors import DumpError

SIZES = ("n", "d1", "d2", "c", "h", "w")
IDENTITY = ("core", "graph", "tensor", "node", "index", "direction", "decoration", "slice", "iteration", "native")
"""Groups that tell one value of a run from another; the others count runs and steps."""
DIRECTIONS = {"in": Role.INPUT, "input": Role.INPUT, "src": Role.INPUT, "blb": Role.WEIGHT}


@dataclass(frozen=True, slots=True)
class Told:
    """What the convention says of one array. names: best first, () where it says nothing; see Entry for the rest.

    codes: integers without a scale, not to be read where the real value is there.
    """

    names: tuple[str, ...] = ()
    decoration: str = ""
    whole: bool = False
    view: str = ""
    role: Role | None = None
    order: int | None = None
    codes: bool = False


class Teller:
    """One convention over one dump. files: path -> place; sidecars: those of them that tell of others; notes: for the user."""

    def __init__(self, convention: Convention, files: dict[Path, PurePosixPath]) -> None:
        self.convention = convention
        self.files = files
        self.text = Folder(list(files.values())).text
        self.notes: list[str] = []
        self._patterns = [
            (re.compile(one.pattern), one)
            for one in convention.entries
            if not one.beside or hits(one.beside, self.text) is not None
        ]
        self._suffixes = [(re.compile(f"(?:{one.pattern})$"), one) for one in convention.suffixes]
        self.sidecars: frozenset[Path] = frozenset()
        self._sidecars: list[tuple[Sidecar, PurePosixPath, sidecars.Notes]] = []
        by_place = {str(place): path for path, place in files.items()}
        for rule in convention.sidecars:
            for name in all_hits(rule.file, self.text):
                if (path := by_place.get(name)) is not None and path not in self.sidecars:
                    told = sidecars.read(path, rule)
                    self.notes += told.said
                    self._sidecars.append((rule, files[path], _by_stem(told) if rule.join == "stem" else told))
                    self.sidecars |= {path}
        self._matched: dict[tuple[PurePosixPath, str | None], tuple[Pattern, dict[str, str]] | None] = {}
        self._pairs = self._paired()

    # --- places -------------------------------------------------------------------------------------------------------

    def match(self, place: PurePosixPath, key: str | None = None) -> tuple[Pattern, dict[str, str]] | None:
        """The first pattern found in the place, or in the key (default: the file's stem), and its groups that are not empty."""
        if (place, key) not in self._matched:
            self._matched[place, key] = self._match(place, key)
        return self._matched[place, key]

    def _match(self, place: PurePosixPath, key: str | None) -> tuple[Pattern, dict[str, str]] | None:
        real = self._renamed(place) if key is None else place
        texts = (str(real), stem(real)) if key is None else (key,)
        for pattern, rule in self._patterns:
            for text in texts:
                if (found := pattern.search(text)) is None:
                    continue
                groups = {name: value for name, value in found.groupdict().items() if value is not None}
                if not rule.paired or (place.parent, groups.get(rule.paired)) in self._pairs:
                    return rule, groups
        return None

    def samples(self, place: PurePosixPath) -> Iterable[tuple[tuple[str, ...], str]]:
        """(what the sample belongs to, which one) for the folders and the name of a file."""
        rule = self.convention.samples
        for depth, part in enumerate(place.parts[:-1] if rule else ()):
            if rule and (found := re.fullmatch(rule.folder, part)):
                yield (*place.parts[:depth], "sample/convention"), found["sample"]
        if (told := self.match(place)) is not None and "sample" in told[1]:
            yield ("sample/convention",), told[1]["sample"]

    def newest(self, places: Sequence[PurePosixPath]) -> list[PurePosixPath]:
        """Of files that differ by their time stamp only, the newest: the others are left from an earlier run."""
        times: dict[tuple[str, ...], int] = {}
        keys: list[tuple[tuple[str, ...], int] | None] = []
        for place in places:
            told = self.match(place)
            key = None
            if told is not None and told[1].get("time", "").isdigit():
                key = (str(place.parent), *(told[1].get(name, "") for name in IDENTITY)), int(told[1]["time"])
                times[key[0]] = max(times.get(key[0], 0), key[1])
            keys.append(key)
        kept = [place for place, key in zip(places, keys, strict=True) if key is None or times[key[0]] == key[1]]
        if len(kept) < len(places):
            count = len(places) - len(kept)
            self.notes.append(f"{count} files were written again later under another time stamp; the newest are read")
        return kept

    def formats(self) -> dict[Path, str]:
        """The format that the convention gives a file; "skip" files are not among them."""
        told = {path: self.match(place) for path, place in self.files.items()}
        return {path: found[0].format for path, found in told.items() if found is not None and found[0].format}

    def skipped(self, place: PurePosixPath) -> bool:
        """True for files that the convention knows to hold no tensor."""
        told = self.match(place)
        return told is not None and told[0].role == "skip"

    def _paired(self) -> set[tuple[PurePosixPath, str | None]]:
        """(folder, value) of the groups that a `paired` pattern asks for, in files that only later patterns fit."""
        found: set[tuple[PurePosixPath, str | None]] = set()
        for number, (pattern, rule) in enumerate(self._patterns):
            for place in self.files.values() if rule.paired else ():
                if pattern.search(str(place)) is not None:
                    continue
                later = (other.search(str(place)) for other, _ in self._patterns[number + 1 :])
                hit = next((one for one in later if one is not None), None)
                if hit is not None and rule.paired in hit.re.groupindex:
                    found.add((place.parent, hit[rule.paired]))
        return found

    def _renamed(self, place: PurePosixPath) -> PurePosixPath:
        for rule, own, notes in self._sidecars:
            if rule.rename and place.parent == own.parent:
                key, dot, rest = place.name.partition(".")
                if (note := notes.by_key.get(key)) is not None and note.name and "/" not in note.name:
                    return place.with_name(note.name + dot + rest)
        return place

    # --- arrays -------------------------------------------------------------------------------------------------------

    def tell(self, piece: Piece, place: PurePosixPath) -> tuple[Piece, Told]:
        """The piece, with type and shape where the convention knows them, and what it says of the rest."""
        inside = printable(piece.name) if piece.name else None
        found = self.match(place, inside)
        rule, groups = found if found is not None else (None, {})
        plain = inside or stem(place)
        own, output = _called(groups, plain)
        note = self._noted(place, own, groups)
        called, output = (note.name, "") if note.name else (own, output)
        name, taken, view, whole = self._bare(called)
        name, called = name + output, called + output
        told = Told(
            names=tuple(dict.fromkeys((name, called))) if name != plain else (),
            decoration=groups.get("decoration", "") + taken if name != plain else "",
            whole=whole,
            view=view,
            role=_role(rule, groups),
            order=_order(groups, note),
            codes=rule is not None and rule.codes,
        )
        return self._typed(piece, rule, groups, note), told

    def _bare(self, name: str) -> tuple[str, str, str, bool]:
        """The name without its decorations, the decorations, the side of a quantise/dequantise pair, and whether all of it counts."""
        taken, view = "", ""
        while True:
            for pattern, rule in self._suffixes:
                hit = pattern.search(name)
                if hit is None or hit.start() == 0 or not hit.group():
                    continue
                if not rule.decoration:
                    return name + taken, "", view, True
                name, taken, view = name[: hit.start()], hit.group() + taken, view or rule.view
                break
            else:
                return name, taken, view, False

    def _noted(self, place: PurePosixPath, own: str, groups: dict[str, str]) -> sidecars.Note:
        """What the sidecars tell: the nearest one above the file, or the only one of its kind."""
        told = sidecars.Note()
        for rule in self.convention.sidecars:
            mine = [(folder.parent, notes) for one, folder, notes in self._sidecars if one is rule and not rule.rename]
            above = [pair for pair in mine if place.is_relative_to(pair[0])]
            notes = max(above, key=lambda pair: len(pair[0].parts))[1] if above else mine[0][1] if len(mine) == 1 else None
            if notes is None:
                continue
            for key in _keys(rule.join, place, own, groups):
                if (note := notes.by_key.get(key)) is not None:
                    told = sidecars.Note(
                        *(
                            getattr(told, item) if getattr(told, item) is not None else getattr(note, item)
                            for item in note.__slots__
                        )
                    )
                    break
        return told

    def _typed(self, piece: Piece, rule: Pattern | None, groups: dict[str, str], note: sidecars.Note) -> Piece:
        reinterpret = self.convention.types.reinterpret if self.convention.types else {}
        if piece.dtype is not None and (meant := reinterpret.get(piece.dtype.name)):
            return reinterpreted(piece, dtypes.named(meant))
        dtype = dtypes.named(rule.dtype) if rule is not None and rule.dtype else None
        if piece.dtype is not None and piece.format != "raw":
            quant = note.quant if piece.quant is None and piece.dtype.kind in "iu" else piece.quant
            return replace(piece if dtype is None else reinterpreted(piece, dtype), quant=quant)
        shape = note.shape if note.shape is not None else _shape(groups)
        if piece.format == "text":
            return piece if shape is None or piece.shape is not None else replace(piece, reader=_reshaped(piece, shape))
        if piece.format != "raw" or piece.dtype is not None:
            return piece
        if dtype is None and note.dtype is not None:
            # what is not native was converted: real numbers to float32, plain integers not at all
            real = "native" not in groups and (note.quant is not None or note.dtype.kind not in "biu")
            dtype = np.dtype(np.float32) if real else note.dtype
        told = _headerless(piece, dtype, shape)
        if told.dtype is not None and told.dtype.kind in "iu" and note.quant is not None:
            return replace(told, quant=note.quant)
        return told


def _by_stem(notes: sidecars.Notes) -> sidecars.Notes:
    return sidecars.Notes({stem(PurePosixPath(key)) if key else key: note for key, note in notes.by_key.items()}, notes.said)


def _keys(join: str, place: PurePosixPath, own: str, groups: dict[str, str]) -> tuple[str, ...]:
    if join == "file":
        return (place.name,)
    if join == "stem":
        return (stem(place),)
    if join == "name":
        return (own,)
    value = groups.get(join, "")
    return (value, str(int(value))) if value.isdecimal() else (value,)


def _called(groups: dict[str, str], otherwise: str) -> tuple[str, str]:
    """The tensor, or the node and ".k" for its k-th output; the first output of an operator that is called after a tensor is that
    tensor."""
    index = groups.get("index", "")
    if tensor := groups.get("tensor"):
        return (tensor if not index.isdecimal() or int(index) == 0 else otherwise), ""
    if node := groups.get("node"):
        return node, f".{int(index)}" if index.isdecimal() else ""
    return otherwise, ""


def _role(rule: Pattern | None, groups: dict[str, str]) -> Role | None:
    if rule is None:
        return None
    turned = DIRECTIONS.get(groups.get("direction", "").lower())
    if turned is not None:
        return turned
    return Role(rule.role) if rule.role not in ("target", "skip") else None


def _order(groups: dict[str, str], note: sidecars.Note) -> int | None:
    for name in ("order", "time", "id"):
        if (text := groups.get(name, "")).isdecimal():
            return int(text)
    return note.order


def _shape(groups: dict[str, str]) -> tuple[int, ...] | None:
    sizes = re.findall(r"\d+", groups.get("shape", "")) or [groups[name] for name in SIZES if name in groups]
    try:
        return buffers.checked_shape([int(size) for size in sizes]) if sizes else None
    except (DumpError, ValueError):
        return None


def _headerless(piece: Piece, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None) -> Piece:
    """A raw piece with the type and shape that it is told to have; without those that its size contradicts."""
    try:
        if shape is not None:
            count = math.prod(shape)
            sized = (
                {1: "int8", 2: "int16", 4: "float32"}.get(piece.nbytes // count) if count and not piece.nbytes % count else None
            )
            kind = dtype if dtype is not None else np.dtype(sized) if sized else None
            if kind is not None:
                return replace(raw.typed(piece.source, kind, shape), name=piece.name, order=piece.order)
        if dtype is not None:
            return replace(raw.elements(piece.source, dtype), name=piece.name, order=piece.order)
    except DumpError:
        pass
    return piece


def _reshaped(piece: Piece, shape: tuple[int, ...]) -> Any:
    """The reader of a text whose name tells the shape; a text of another length keeps the shape that the model expects."""

    def reader(expect: Any) -> Any:
        numbers = piece.reader(None)
        if numbers.size != math.prod(shape):
            return piece.reader(expect)
        return numbers.astype(np.float32).reshape(shape) if expect is None or expect.dtype.kind == "f" else numbers.reshape(shape)

    return reader
