"""Tables of a TOML file as frozen dataclasses; what does not fit is one error that names the key and what is allowed there."""

from __future__ import annotations

import dataclasses
import difflib
import types
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bisect_align.errors import DumpError

_Table = TypeVar("_Table")
_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def table(kind: type[_Table], value: object, at: str = "") -> _Table:
    """`value` (what tomllib returns) as an instance of the dataclass `kind`. Raises DumpError with the key, such as entries[0].role.

    Fields may be texts, numbers, booleans, Literals, optional ones, tuples of these, dicts of these, and dataclasses.
    """
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # kind is a dataclass
    if not isinstance(value, dict):
        raise DumpError(f"{at or 'the file'} must be a table, not {_shown(value)}", hint=f"its keys: {', '.join(fields)}")
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(fields)}"
            raise DumpError(f"{_below(at, key)} is not known", hint=hint)
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            found[name] = _value(hints[name], value[name], _below(at, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DumpError(f"{_below(at, name)} is missing", hint=f"it must be {_wanted(hints[name])}")
    return kind(**found)


def _below(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _value(kind: Any, value: object, at: str) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # only `X | None`: TOML has no null, so a value that is there is an X
        return _value(next(arg for arg in args if arg is not type(None)), value, at)
    if origin is Literal:
        if value not in args:
            near = difflib.get_close_matches(str(value), [str(arg) for arg in args], n=1)
            hint = f"did you mean {near[0]!r}?" if near else ""
            raise DumpError(f"{at} must be {_wanted(kind)}, not {_shown(value)}", hint=hint)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise DumpError(f"{at} must be {_wanted(kind)}, not {_shown(value)}")
        return tuple(_value(args[0], item, f"{at}[{position}]") for position, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise DumpError(f"{at} must be {_wanted(kind)}, not {_shown(value)}")
        return {key: _value(args[1], item, _below(at, key)) for key, item in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return table(kind, value, at)
    number = kind is float and isinstance(value, int) and not isinstance(value, bool)
    if not number and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise DumpError(f"{at} must be {_wanted(kind)}, not {_shown(value)}")
    return float(value) if number else value  # type: ignore[arg-type]  # number: an int


def _wanted(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _wanted(next(arg for arg in args if arg is not type(None)))
    if origin is Literal:
        return "one of " + ", ".join(str(arg) for arg in args)
    if origin is tuple:
        return f"a list, each {_wanted(args[0])}"
    if origin is dict:
        return f"a table, each value {_wanted(args[1])}"
    return _WORDS.get(kind, "a table")
