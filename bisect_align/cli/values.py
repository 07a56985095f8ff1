"""What users write after --threshold and --memory, in numbers."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterable

from bisect_align.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SIGNED = ("cosine", "psnr", "sqnr")
_EXAMPLE = {"cosine": 0.99, "psnr": 40, "sqnr": 30, "mismatched": 0}
_LEAST = 1 << 20  # below it a unit was forgotten
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def size(text: str) -> int:
    """Bytes: 2G, 512M, 1.5GiB or a plain number; K, M, G and T are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    value = float(found[1]) * 1024 ** _POWER[found[2].upper()] if found else 0.0
    if not 0 < value < math.inf:
        raise UsageError(f"{text!r} is no size", where="--memory", hint="for example 2G or 512M")
    if value < _LEAST:
        raise UsageError(f"{text!r} is less than 1M", where="--memory", hint="for example 2G or 512M")
    return int(value)


def thresholds(pairs: Iterable[str], known: Collection[str]) -> dict[str, float]:
    """{"cosine": 0.99} of ["cosine=0.99"]; the last one of a name counts. known: the metrics that can be limited."""
    limits: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals:
            raise UsageError(f"{pair!r} is not name=value", where="--threshold", hint="for example cosine=0.99")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(sorted(known))}"
            raise UsageError(f"no metric is called {name!r}", where="--threshold", hint=hint)
        limits[name] = _number(text, name)
    return limits


def _number(text: str, name: str) -> float:
    where = f"--threshold {name}"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"{text!r} is no number", where=where, hint=f"for example {name}={_EXAMPLE.get(name, 1e-3)}")
    if name == "cosine" and abs(value) > 1:
        raise UsageError(f"{text} cannot be met", where=where, hint="a cosine lies between -1 and 1")
    if value < 0 and name not in _SIGNED:
        raise UsageError(f"{text} cannot be met", where=where, hint="this error is never below 0")
    return value
