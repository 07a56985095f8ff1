"""The user's map file, read from disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bisect_align.errors import MatchError
from bisect_align.matching.maps import parse_map

KIND = "--map takes a TOML or JSON file"


def read_map(path: Path) -> Mapping[str, str]:
    """Entry -> tensor, "" = leave the entry out. Raises MatchError for a file that is no map."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as trouble:
        raise MatchError(f"cannot be read: {(trouble.strerror or str(trouble)).lower()}", where=str(path), hint=KIND) from None
    except UnicodeDecodeError:
        raise MatchError("is no UTF-8 text", where=str(path), hint=KIND) from None
    return parse_map(text, name=str(path))
