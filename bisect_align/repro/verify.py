"""A repro proves itself before it is handed over: its own script must show the failure that the run saw."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bisect_align.metrics.measure import measure
from bisect_align.repro.content import Content
from bisect_align.result.result import Culprit

WITHIN = 1.5  # factor between the error that the run saw and the one that the case shows
SECONDS = 600.0
SAME = 1e-3  # relative difference of two measurements of the same values
HEALTHY = "nobody is accused here: the case shows a healthy operator"


@dataclass(frozen=True, slots=True)
class Verified:
    """same: the case shows the failure of the run. text: what was seen, in one sentence. report: the script's own figures."""

    same: bool
    text: str
    report: dict[str, Any]


def changed(made: Content, culprit: Culprit) -> str:
    """Why the dump cannot be the one that the run read: the error that its values show now, beside the one that convicted; "" where
    they are the same. made: the case of the region alone."""
    output, known = made.outputs[0], culprit.introduced
    if output.target is None:
        return ""
    if output.target.shape != output.golden.shape:
        now = f"shape {list(output.target.shape)}" if known.elements else ""
    elif not known.elements:
        now = f"shape {list(output.target.shape)}, which is right"
    else:
        with np.errstate(all="ignore"):
            seen = measure(output.golden, output.target)
        alike = all(_near(a, b) for a, b in ((seen.rel_l2, known.rel_l2), (seen.max_abs, known.max_abs)))
        alike &= seen.worst != known.worst or _near(seen.worst_target, known.worst_target)
        now = "" if alike else f"error {_figure(seen.rel_l2)} (max abs {_figure(seen.max_abs)})"
    run = f"{_figure(known.rel_l2)} (max abs {_figure(known.max_abs)})" if known.elements else "another shape"
    return f"the dump is not what the run read: {now}, the run saw {run}" if now else ""


def _near(now: float | None, then: float | None) -> bool:
    """Equal but for the last digits, which another version of the golden engine may change."""
    if now is None or then is None or math.isnan(now) or math.isnan(then):
        return (now is None or math.isnan(now)) == (then is None or math.isnan(then))
    return math.isclose(now, then, rel_tol=SAME)


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def verify(folder: Path, culprit: Culprit | None = None, *, accused: bool = True) -> Verified:
    """Run repro.py of the folder and compare with the figures of the run (culprit None: it must differ, that is all; of a case cut
    down to one element, this element's error is compared). accused: otherwise a target that agrees is what is to be shown."""
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
    if done.returncode == 0 and not accused:
        return Verified(True, HEALTHY, report)
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
