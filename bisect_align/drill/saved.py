"""drill.json beside the result: where a drill stood when it ended, so that the next one goes on from there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bisect_align.drill.navigation import Position
from bisect_align.errors import OutputError
from bisect_align.result.files import RESULT, replace_text

SCHEMA = "bisect-align/drill/1"
FILE = "drill.json"


class _Saved(msgspec.Struct, frozen=True):
    schema: str
    result_sha256: str
    position: Position


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where the state of a drill is kept. digest: of the result.json that it belongs to."""

    file: Path
    digest: str


def shelf(result: Path) -> Shelf:
    """The shelf of a result folder, or of a result.json."""
    file = result / RESULT if result.is_dir() else result
    return Shelf(file.with_name(FILE), hashlib.sha256(file.read_bytes()).hexdigest())


def resume(place: Shelf) -> tuple[Position | None, str]:
    """The position that was kept, and one line where there is one that is not used."""
    try:
        content = place.file.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{FILE} is not used: it cannot be read ({error.strerror})"
    try:
        saved = msgspec.json.decode(content, type=_Saved)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return None, f"{FILE} is not used: it is no state of a drill"
    if saved.schema != SCHEMA:
        return None, f"{FILE} is not used: it is of another version"
    if saved.result_sha256 != place.digest:
        return None, f"{FILE} is not used: it is of another result"
    return saved.position, ""


def keep(place: Shelf, position: Position) -> str:
    """Write the position; a reader sees the old file or the new one. One line where that cannot be done."""
    text = msgspec.json.format(msgspec.json.encode(_Saved(SCHEMA, place.digest, position)), indent=2).decode()
    try:
        replace_text(place.file, text + "\n")
    except OutputError as error:
        return f"where you stand is not kept: {error.what}"
    return ""
