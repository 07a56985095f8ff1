"""The user's map from entries to tensors: parsed from text, checked against what exists."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bisect_align.dumps.entry import Entry
from bisect_align.errors import MatchError

TABLE = "tensors"
_EXPECTED = 'expected a table [tensors] of "entry" = "tensor" pairs, "" to ignore an entry'
_TOML_LINE = re.compile(r"\s*\(at line (\d+), column \d+\)$")


def parse_map(text: str, *, name: str) -> dict[str, str]:
    """Entry -> tensor, "" = ignore, from TOML (`[tensors]`) or JSON (`{"tensors": {...}}`); without that table, all is the map.

    name: what the text is called in errors; its ending .json or .toml says the format, else a leading brace means JSON.
    Raises MatchError with the line where one is known.
    """
    text = text.removeprefix("\ufeff")
    json_text = name.lower().endswith(".json") or (not name.lower().endswith(".toml") and text.lstrip().startswith("{"))
    data = _from_json(text, name) if json_text else _from_toml(text, name)
    if not isinstance(data, dict):
        raise MatchError("the map is no table", where=name, hint=_EXPECTED)
    _check_keys(data, name)
    pairs = data.get(TABLE, data)
    if isinstance(pairs, str):  # a flat map whose entry is called `tensors`
        pairs = data
    if not isinstance(pairs, dict):
        raise MatchError("[tensors] is no table", where=_at(name, text, "tensors"), hint=_EXPECTED)
    for entry, tensor in pairs.items():
        if isinstance(tensor, dict):
            # TOML reads a.b = "c" as a table in a table.
            raise MatchError(
                f"the key {entry!r} holds a table", where=_at(name, text, entry), hint="put names with dots in quotes"
            )
        if not isinstance(tensor, str):
            raise MatchError(f"the tensor of {entry!r} is no text: {tensor!r}", where=_at(name, text, entry), hint=_EXPECTED)
    _check_twice(pairs, name)
    return dict(pairs)


def _check_keys(document: Mapping[str, Any], name: str) -> None:
    """Beside [tensors] nothing is read; without it, a table of nearly that name is meant for it."""
    if isinstance(document.get(TABLE), dict):
        unknown = [key for key in document if key != TABLE]
    else:
        unknown = difflib.get_close_matches(TABLE, [key for key, value in document.items() if isinstance(value, dict)], 1)
    if unknown:
        near = difflib.get_close_matches(unknown[0], [TABLE])
        hint = f"did you mean [{TABLE}]? names with dots need quotes" if near else f"entries stand below [{TABLE}]"
        raise MatchError(f"unknown key {unknown[0]!r}", where=name, hint=hint)


def _check_twice(pairs: Mapping[str, str], name: str) -> None:
    """Which of two entries of one tensor the user means cannot be told."""
    entries: dict[str, str] = {}
    for entry, tensor in pairs.items():
        if tensor and (other := entries.setdefault(tensor, entry)) != entry:
            raise MatchError(
                f"two entries are given the tensor {tensor!r}: {other!r} and {entry!r}",
                where=name,
                hint='leave one of them out with ""',
            )


def check_map(map: Mapping[str, str], entries: Sequence[Entry], tensors: Collection[str]) -> None:
    """Raises MatchError at the first pair whose entry (key or name) or tensor does not exist, with the nearest names."""
    known_entries = {name for entry in entries for name in (entry.key, *entry.names)}
    known_tensors = frozenset(tensors)
    for entry, tensor in map.items():
        if entry not in known_entries:
            raise MatchError(
                f"the map names an entry that the dump does not hold: {entry!r}", hint=_nearest(entry, known_entries)
            )
        if tensor and tensor not in known_tensors:
            raise MatchError(
                f"the map gives {entry!r} a tensor that the model does not have: {tensor!r}", hint=_nearest(tensor, known_tensors)
            )


def _from_json(text: str, name: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise MatchError(f"the key {key!r} stands twice", where=_at(name, text, key))
            found[key] = value
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise MatchError(f"not valid JSON: {error.msg}", where=f"{name}:{error.lineno}", hint=_EXPECTED) from None
    except RecursionError:
        raise MatchError("not a map: nested too deeply", where=name, hint=_EXPECTED) from None


def _from_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        line = _TOML_LINE.search(message)
        where = f"{name}:{line[1]}" if line else f"{name}:{text.count(chr(10)) + 1}"
        raise MatchError(f"not valid TOML: {_TOML_LINE.sub('', message)}", where=where, hint=_EXPECTED) from None
    except RecursionError:
        raise MatchError("not a map: nested too deeply", where=name, hint=_EXPECTED) from None


def _at(name: str, text: str, key: str) -> str:
    """`name:line` of the last line that begins with the key (quoted or not), `name` if none does."""
    begins = re.compile(rf"[\s{{,\[]*[\"']?{re.escape(key)}[\"']?\s*[.=:\]]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if begins.match(line)]
    return f"{name}:{lines[-1]}" if lines else name


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    return f"nearest: {', '.join(near)}" if near else f"there is {', '.join(sorted(known)[:3])}{', …' if len(known) > 3 else ''}"
