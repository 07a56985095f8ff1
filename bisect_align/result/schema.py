"""The JSON Schema of result.json, made from the dataclasses, so that it cannot say anything else than they do."""

from __future__ import annotations

from typing import Any

import msgspec

from bisect_align.result.result import SCHEMA, Result

_NUMBER = {
    "description": "A number; NaN and the infinities are strings.",
    "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
}


def schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that every file written by files.write() satisfies."""
    made: dict[str, Any] = _numbers(msgspec.json.schema(Result))
    made["$defs"]["Number"] = _NUMBER
    made["$defs"]["Result"]["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "bisect-align result", **made}


def _numbers(part: Any) -> Any:
    """Every float of the schema may also be one of the three strings."""
    if isinstance(part, dict):
        if part.get("type") == "number":
            return {"$ref": "#/$defs/Number"}
        return {key: _numbers(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_numbers(value) for value in part]
    return part


def schema_text() -> str:
    """The schema as the package ships it (result.schema.json)."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
