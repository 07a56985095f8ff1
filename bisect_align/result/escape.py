"""Names in a result come from strangers, models and dumps: made harmless before they reach a terminal or a spreadsheet."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, marks that reorder text, and halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

# A spreadsheet takes a cell that begins with one of these for a formula (OWASP, "CSV injection"; the last four are full-width).
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def visible(text: str) -> str:
    """The text with characters that steer a terminal or hide from the eye written as \\x1b or \\u202e."""
    return _UNSEEN.sub(lambda found: _code(found.group()), text)


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def cell(name: str) -> str:
    """The name for a CSV cell: as visible() gives it, behind an apostrophe where it could be read as a formula."""
    text = visible(name)
    return f"'{text}" if name.startswith(_FORMULA) else text
