"""result.json and tensors.csv: what a run leaves behind, and how it is read again."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bisect_align.errors import OutputError, UsageError
from bisect_align.result.result import SCHEMA, Result
from bisect_align.result.schema import schema
from bisect_align.result.table import to_csv

__all__ = ["RESULT", "TABLE", "check", "from_json", "read", "replace_text", "schema", "to_json", "write"]

RESULT = "result.json"
TABLE = "tensors.csv"
_ASIDE = ".writing-"

# JSON allows these bare, terminals and editors obey them: C1 controls, separators, marks that reorder text.
_UNSEEN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def to_json(result: Any) -> bytes:
    """A result (or any plain data) as indented UTF-8 JSON; NaN and the infinities become "nan", "inf", "-inf"."""
    plain = msgspec.json.encode(_plain(msgspec.to_builtins(result)))
    text = msgspec.json.format(plain, indent=2).decode()
    return _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text).encode() + b"\n"


def _plain(value: Any) -> Any:
    """The same value in what JSON can hold: no NaN, no lone surrogates (a file name may bring them in)."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def from_json(data: bytes) -> Result:
    """The Result that to_json() wrote. Raises UsageError for anything else."""
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
        if head.get("schema") != SCHEMA:
            raise UsageError("not a result of this version", hint=f"expected schema {SCHEMA!r}, got {head.get('schema')!r}")
        # Not strict: a float may stand as the string "nan" or "inf".
        return msgspec.convert(head, Result, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"not a result: {error}", hint="expected a result.json written by bisect-align") from error


def read(path: Path) -> Result:
    """The result of a folder, or of a result.json itself. Raises UsageError."""
    file = path / RESULT if path.is_dir() else path
    try:
        return from_json(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except UsageError as error:
        raise UsageError(error.what, where=str(file), hint=error.hint) from error


def check(folder: Path, marker: str = RESULT, what: str = "result") -> None:
    """Raise OutputError unless the folder may be written: it does not exist, is empty, or holds an earlier result (or `what` else
    of ours, told by the schema in its `marker` file). Worth asking before a long run.
    """
    try:
        if not _is_there(folder):
            _check_above(folder)
            return
        if not folder.is_dir():
            raise OutputError("is no folder", where=str(folder), hint="name another one with -o")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OutputError("may not be written to", where=str(folder), hint="name another folder with -o")
        empty = all(path.name.startswith(_ASIDE) for path in folder.iterdir())
    except OSError as error:
        raise OutputError(f"cannot be used: {error.strerror}", where=str(folder), hint="name another folder with -o") from error
    if not empty and not _is_ours(folder / marker, what):
        raise OutputError(f"holds something else than an earlier {what}", where=str(folder), hint="name another folder with -o")


def _check_above(folder: Path) -> None:
    """Raise OutputError unless the folder can be made below what exists."""
    above = next((path for path in folder.parents if _is_there(path)), folder.parent)
    if not above.is_dir():
        raise OutputError(f"cannot be made: {above} is no folder", where=str(folder), hint="name another one with -o")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"cannot be made: {above} may not be written to", where=str(folder), hint="name another one with -o")


def _is_there(path: Path) -> bool:
    """Whether something bears this name, be it a dangling link. Raises OSError for a name that nothing can bear."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _is_ours(file: Path, what: str) -> bool:
    try:
        head = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    return str(head.get("schema", "")).startswith(f"bisect-align/{what}")


def write(result: Result, folder: Path, beside: Mapping[str, bytes] | None = None) -> None:
    """Write result.json and tensors.csv, and what else belongs to the result (beside: file name -> content).

    A reader sees the old file or the new one, never a half. Raises OutputError.
    """
    check(folder)
    others = {folder / name: content for name, content in (beside or {}).items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace({folder / RESULT: to_json(result), folder / TABLE: to_csv(result).encode(), **others})
    except OSError as error:
        hint = "name another folder with -o"
        raise OutputError(f"cannot be written: {error.strerror or error}", where=str(folder), hint=hint) from error


def replace_text(file: Path, text: str) -> None:
    """Write a text file; a reader sees the old one or the new one. Raises OutputError."""
    try:
        _replace({file: text.encode("utf-8", "backslashreplace")})
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", where=str(file), hint="name another file") from error


def _replace(contents: Mapping[Path, bytes]) -> None:
    """All files are written aside before the first one takes its place: a full disk leaves what was there."""
    asides = {file: file.with_name(f"{_ASIDE}{os.getpid()}-{file.name}") for file in contents}
    try:
        for file, aside in asides.items():
            aside.write_bytes(contents[file])
        for file, aside in asides.items():
            aside.replace(file)
    except BaseException:
        for aside in asides.values():
            aside.unlink(missing_ok=True)
        raise
