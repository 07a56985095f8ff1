"""A slice of the symptom table: what is planted is what is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import quality
import symptom_table
from symptom_plants import KINDS

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.mark.parametrize("precision", symptom_table.PRECISION_NAMES)
def test_what_is_planted_is_named(precision: str, tmp_path: Path) -> None:
    subjects = list(quality.subjects_in(MODELS))
    with np.errstate(all="ignore"):
        found = list(symptom_table.outcomes(tmp_path, subjects, list(KINDS), [precision], count=2, seed=11))
    print(*symptom_table.table(found), sep="\n")
    assert {one.kind for one in found} == set(KINDS)
    missed = [one for one in found if one.word != "right"]
    assert len(missed) <= (0.2 if precision == "int8" else 0.1) * len(found), missed
