"""case.json, which says what is known of a real run in a corpus: the options that run it again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bisect_align.session.options import Options


def options_of(folder: Path, told: Mapping[str, Any], dump: str = "dump") -> Options:
    """folder: of the case; told: its case.json; dump: which key of it names the dump ("control": the healthy one of a bug)."""
    inputs, twin = told.get("inputs"), told.get("quantised_model")
    return Options(
        model=folder / told["model"],
        target_dump=folder / told[dump],
        inputs=folder / inputs if inputs else None,
        quantized_model=folder / twin if twin else None,
    )
