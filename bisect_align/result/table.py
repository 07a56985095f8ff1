"""tensors.csv: one row a tensor, in topological order, with all its figures."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import fields

from bisect_align.result.escape import cell
from bisect_align.result.result import Figures, Result, TensorRow

_ABOUT = ("order", "name", "node", "op", "state", "reason", "entry", "rule", "fix", "confidence")
_BUDGET = ("introduced", "inherited", "gain", "hides", "score")
_FIGURES = tuple(item.name for item in fields(Figures))
COLUMNS = _ABOUT + _BUDGET + _FIGURES


def to_csv(result: Result) -> str:
    """The table as text: a header, then one line for each of result.tensors; a figure that was not computed is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(list(_row(tensor)) for tensor in result.tensors)
    return out.getvalue()


def _row(tensor: TensorRow) -> Iterator[str]:
    for name in _ABOUT + _BUDGET:
        yield _cell(getattr(tensor, name))
    for name in _FIGURES:
        yield _cell(getattr(tensor.accumulated, name)) if tensor.accumulated is not None else ""


def _cell(value: object) -> str:
    """Text is made harmless, numbers stay numbers: -1.5 is no formula. An index is written 0:3:1."""
    if value is None:
        return ""
    if isinstance(value, str):
        return cell(value)
    if isinstance(value, tuple):
        return ":".join(map(str, value))
    return str(value)
