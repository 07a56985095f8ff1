"""From files to listed arrays: which reader a file gets, by its ending, its first bytes, or what the convention says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from bisect_align.dumps import buffers, ieb, manifest, npy, npz, pb, polygraphy, raw, safetensors, text, torch_file
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

Places: TypeAlias = Mapping[Path, PurePosixPath]
Reader: TypeAlias = Callable[[Path], Listing | None]

RAW = frozenset({".bin", ".raw", ".dat", ".data"})
GRAPHS = frozenset({".param", ".xml", ".onnx"})
"""Model files; a raw file named like one ("m.param", "m.bin") or after one ("m.onnx.data") holds its weights."""
CONTAINERS = frozenset({".npz", ".safetensors"})


def _loose(reader: Callable[[Path], Piece | None]) -> Reader:
    def listing(path: Path) -> Listing | None:
        piece = reader(path)
        return None if piece is None else Listing((piece,))

    return listing


def _raw_or_npy(path: Path) -> Listing | None:
    """An .npy under the ending of a raw file keeps its header."""
    listing = _sniffed(path)
    return listing if listing is not None else Listing((raw.piece(path),))


def _text_or_raw(path: Path) -> Piece | None:
    """Acuity's .tensor files are texts; some of its tools are said to write bytes under the same ending."""
    return raw.piece(path) if b"\0" in buffers.head(path, text.HEAD) else text.piece(path)


FORMATS: dict[str, Reader] = {
    "npy": _loose(npy.piece),
    "npz": npz.listing,
    "pb": _loose(pb.piece),
    "safetensors": safetensors.listing,
    "text": _loose(text.piece),
    "raw": _loose(raw.piece),
    "ieb": _loose(ieb.piece),
    "pt": torch_file.listing,
}
ENDINGS: dict[str, Reader] = {
    **{f".{name}": FORMATS[name] for name in ("npy", "npz", "pb", "safetensors", "ieb", "pt")},
    **dict.fromkeys(RAW, _raw_or_npy),
    ".txt": FORMATS["text"],
    ".tensor": _loose(_text_or_raw),
    ".tensorproto": FORMATS["pb"],
    ".pth": FORMATS["pt"],
}


@dataclass(slots=True)
class Found:
    """What the files of a dump hold."""

    pieces: list[Piece] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ignored: list[PurePosixPath] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, listing: Listing) -> None:
        """Take over what one file holds."""
        self.pieces += listing.pieces
        self.faults += listing.faults
        self.notes += listing.notes


class Files:
    """The files of one dump, each listed at most once. told: the format that the convention gives a file ("": none)."""

    def __init__(self) -> None:
        self._listed: dict[Path, Listing | None] = {}
        self._documents: dict[Path, Any] = {}

    def listing(self, path: Path, told: str = "") -> Listing | None:
        """What the file holds; None where it is no file of arrays. Raises DumpError."""
        if path not in self._listed:
            self._listed[path] = (FORMATS[told] if told else ENDINGS.get(path.suffix.lower(), _sniffed))(path)
        return self._listed[path]

    def document(self, path: Path) -> Any:
        """The JSON of a file. Raises DumpError, ValueError, RecursionError."""
        if path not in self._documents:
            self._documents[path] = json.loads(buffers.whole(path))
        return self._documents[path]

    def containers(self, files: Places) -> tuple[dict[PurePosixPath, list[str]], frozenset[str]]:
        """Keys of the arrays in each container, and which formats there are; unreadable files are left for later."""
        keys: dict[PurePosixPath, list[str]] = {}
        formats: set[str] = set()
        for path, place in files.items():
            ending = path.suffix.lower()
            try:
                if ending in CONTAINERS:
                    listing = self.listing(path) or Listing()
                    keys[place] = [piece.member for piece in listing.pieces if piece.member is not None]
                    formats.add(ending[1:])
                elif ending == ".json" and polygraphy.is_run(self.document(path)):
                    formats.add("polygraphy")
                elif ending == ".json" and manifest.items(self.document(path)) is not None:
                    formats.add("manifest")
            except (DumpError, ValueError, RecursionError):
                continue
        return keys, frozenset(formats)

    def read(self, files: Places, sidecars: frozenset[Path], told: Mapping[Path, str]) -> Found:
        """List all files but the sidecars: manifests first, since they speak for other files."""
        found = Found()
        claimed: set[Path] = set()
        for path, place in files.items():
            if path.suffix.lower() == ".json" and path not in sidecars:
                self._read_json(path, place, found, claimed)
        graphs = {path.with_suffix("") for path in files if path.suffix.lower() in GRAPHS}
        for path, place in files.items():
            ending = path.suffix.lower()
            if path in claimed or (ending == ".json" and path not in sidecars):
                continue
            weights = ending in RAW and (path.with_suffix("") in graphs or path.with_suffix("") in files)
            if path in sidecars or weights:
                found.ignored.append(place)
                continue
            try:
                listing = self.listing(path, told.get(path, ""))
            except DumpError as error:
                found.faults.append(Fault(path, error.what))
                continue
            if listing is None:
                found.ignored.append(place)
            else:
                found.add(listing)
        return found

    def _read_json(self, path: Path, place: PurePosixPath, found: Found, claimed: set[Path]) -> None:
        document: Any = None
        try:
            document = self.document(path)
        except DumpError as error:
            found.faults.append(Fault(path, error.what))
            return
        except (ValueError, RecursionError):
            if path.name == manifest.NAME:
                found.faults.append(Fault(path, "is no JSON"))
                return
        found.notes += manifest.unread(path, document)
        try:
            tensors = manifest.items(document)
            if tensors is not None:
                listing = manifest.listing(path, tensors)
                claimed |= {piece.source for piece in listing.pieces} | {fault.source for fault in listing.faults}
                found.add(listing)
            elif polygraphy.is_run(document):
                found.add(polygraphy.listing(path, document))
            else:
                found.ignored.append(place)
        except DumpError as error:
            found.faults.append(Fault(path, error.what))


def _sniffed(path: Path) -> Listing | None:
    """Files without a known ending: .npy and .npz by their first bytes, a text of numbers where there is no ending at all."""
    start = buffers.head(path, text.HEAD)
    if start.startswith(npy.MAGIC):
        return Listing((npy.piece(path),))
    if path.suffix:
        return None
    if start.startswith(npz.MAGIC):
        return npz.listing(path)
    numbers = text.piece(path) if start.strip() and b"\0" not in start else None
    return Listing((numbers,)) if numbers is not None else None
