"""Every real run in models/ (and in the corpus that BISECT_ALIGN_CORPUS names): a healthy part is never accused.

right   a bug: verdict fault, and the first culprit ends at a known culprit's tensor, or is a region of at most 25 nodes that
        holds one; with a certificate. A healthy or control run: aligned.
wrong   somebody healthy is accused. Never allowed.
missed  anything else: undecided, accumulation, trouble. Printed, and counted by the score of the whole corpus.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from case_json import options_of

from bisect_align.errors import BisectAlignError
from bisect_align.result.result import Result, Verdict
from bisect_align.session.options import Options
from bisect_align.session.run import run

MODELS = Path(__file__).resolve().parents[2] / "models"
LARGER = os.environ.get("BISECT_ALIGN_CORPUS")
ACCUSING = {Verdict.FAULT, Verdict.DUMP_SUSPECT, Verdict.INPUT_MISMATCH, Verdict.GOLDEN_SUSPECT}
WIDEST_REGION = 25


@dataclass(frozen=True)
class Case:
    """One run of the corpus: a bug, its control, or a healthy dump; truth: what case.json says of it. dump: which of its dumps."""

    name: str
    folder: Path
    dump: str
    faulty: bool
    truth: dict[str, Any]

    def options(self) -> Options:
        return options_of(self.folder, self.truth, self.dump)


def cases(root: Path) -> Iterator[Case]:
    for file in sorted(root.rglob("case.json")):
        truth = json.loads(file.read_text(encoding="utf-8"))
        yield Case(truth["name"], file.parent, "dump", truth["expected"] == "fault", truth)
        if truth.get("control"):
            yield Case(f"{truth['name']}/control", file.parent, "control", False, truth)


def corpus() -> list[Case]:
    """All cases; one that is in both corpora runs once."""
    found = {case.name: case for root in (LARGER, MODELS) if root for case in cases(Path(root))}
    return [found[name] for name in sorted(found)]


def known(truth: dict[str, Any]) -> set[str]:
    """Tensors that end a right answer."""
    named = [truth["culprit"], *(truth.get("also_acceptable") or ()), *(truth.get("other_culprits") or ())]
    return {item["tensor"] if isinstance(item, dict) else item for item in named}


def score(case: Case, result: Result) -> str:
    """right, wrong or missed."""
    if not case.faulty:
        return "right" if result.verdict is Verdict.ALIGNED else "wrong" if result.verdict in ACCUSING else "missed"
    if result.verdict is not Verdict.FAULT or not result.culprits:
        return "wrong" if result.verdict in ACCUSING else "missed"
    region, answers = result.culprits[0].region, known(case.truth)
    inside = {name for node in region.nodes for name in node.outputs}
    if region.output in answers or (len(region.nodes) <= WIDEST_REGION and inside & answers):
        return "right"
    return "wrong"


@pytest.mark.parametrize("case", corpus(), ids=lambda case: case.name)
def test_nobody_healthy_is_accused(case: Case, record_property: Callable[[str, object], None]) -> None:
    try:
        result = run(case.options())
    except BisectAlignError as error:
        print(f"missed {case.name}: {error}")
        record_property("score", "missed")
        return
    answer = score(case, result)
    culprit = result.culprits[0].region.output if result.culprits else "nobody"
    print(f"{answer} {case.name}: {result.verdict}, first culprit {culprit}")
    record_property("score", answer)
    assert answer != "wrong", f"{result.verdict}, first culprit {culprit}: {result.summary}"
