"""A repro proves itself before it is handed over: its own script must show the failure that the run saw."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bisect_align.result.result import Culprit

WITHIN = 1.5  # factor between the error that the run saw and the one that the case shows
SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Verified:
    """same: the case shows the failure of the run. text: what was seen, in one sentence. report: the script's own figures."""

    same: bool
    text: str
    report: dict[str, Any]


def verify(folder: Path, culprit: Culprit | None = None) -> Verified:
    """Run repro.py of the folder and compare with the figures of the run (culprit None: it must differ, that is all; of a case cut
    down to one element, this element's error is compared)."""
    try:
        done = subprocess.run(
            [sys.executable, str(folder.resolve() / "repro.py"), "--json"],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verified(False, f"it ran for more than {SECONDS:.0f} s", {})
    if done.returncode not in (0, 1):
        said = " ".join(done.stderr.split())[-300:]
        return Verified(False, f"it cannot be run (exit code {done.returncode}): {said}", {})
    report: dict[str, Any] = json.loads(done.stdout)
    outputs = report["outputs"]
    if not all(entry["golden_same_bits"] for entry in outputs):
        return Verified(False, "the cut model ends in other bits than the run's own replay", report)
    if done.returncode == 0:
        return Verified(False, "the target agrees with the cut model", report)
    seen = next(entry for entry in outputs if entry.get("differs"))
    if culprit is None:
        return Verified(True, f"at {seen['name']!r} the target is off by {_size(seen)}", report)
    return _as_in_the_run(seen, culprit, report)


def _as_in_the_run(seen: dict[str, Any], culprit: Culprit, report: dict[str, Any]) -> Verified:
    known = culprit.introduced
    shown = f"off by {_size(seen)}"
    if not known.elements:  # shapes differ: there are no figures to compare
        same = not seen["worst"]
        return Verified(
            same, f"{seen['statistic']}, as in the run" if same else f"{shown}, where the run saw another shape", report
        )
    place = tuple(seen["worst"][0]["index"]) if seen["worst"] else None
    if "element" in seen:
        place = known.worst
    error, expected = seen["max_abs"], known.max_abs if known.max_abs is not None else math.nan
    near = error == expected or (expected > 0 and 1 / WITHIN <= error / expected <= WITHIN)
    if place == known.worst and near:
        return Verified(True, f"{shown}, worst at {list(place or ())}, as in the run", report)
    run = f"max abs {expected:.4g}, worst at {list(known.worst or ())}"
    return Verified(False, f"{shown}, worst at {list(place or ())}, where the run saw {run}", report)


def _size(seen: dict[str, Any]) -> str:
    return f"{seen['rel_l2']:.4g} (relative L2), max abs {seen['max_abs']:.4g}"
