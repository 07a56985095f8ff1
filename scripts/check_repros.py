"""Every bug of a corpus as repros: are they one operator, do they show the failure, does the script tell fault from control?

    python scripts/check_repros.py CORPUS [--python CLEAN_PYTHON] [--only NAME] [--minimize]

Prints a table. CLEAN_PYTHON: an interpreter with numpy and onnxruntime alone, to run each repro.py with. Columns: nodes in the cut;
seen: it showed the failure of the run; script: exit code of repro.py (1 is right); control: exit code with the control's value
(0 is right; "-" where the control was fed other values or is not there); shrink: elements of the inputs before and after.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from case_json import options_of
from numpy.typing import NDArray

from bisect_align.errors import BisectAlignError
from bisect_align.repro.alone import MANIFEST
from bisect_align.repro.chosen import chosen
from bisect_align.repro.write import Repro, write
from bisect_align.result.result import Culprit
from bisect_align.session.reopen import Reopened
from bisect_align.session.run import run

Array: TypeAlias = NDArray[Any]

CLOSE = 2.0**-23  # relative L2 up to which the control was fed the same


@dataclass(frozen=True)
class Row:
    """One repro of one case."""

    case: str
    precision: str
    made: Repro | None
    script: int | None
    control: int | None
    seconds: float
    whole: int = 0
    trouble: str = ""


def rows(file: Path, python: str, *, minimize: bool) -> Iterator[Row]:
    truth = json.loads(file.read_text(encoding="utf-8"))
    options = options_of(file.parent, truth)
    start = time.perf_counter()
    try:
        result = run(options)
        opened = Reopened(result, options)
        named = chosen(opened, result)[:1]
    except BisectAlignError as error:
        yield Row(truth["name"], truth["precision"], None, None, None, time.perf_counter() - start, trouble=str(error))
        return
    for name, culprit in named:
        with tempfile.TemporaryDirectory() as place:
            start = time.perf_counter()
            try:
                made = write(opened, result, culprit, Path(place) / name, minimize=minimize)
            except BisectAlignError as error:
                yield Row(truth["name"], truth["precision"], None, None, None, time.perf_counter() - start, trouble=str(error))
                continue
            seconds = time.perf_counter() - start
            script = exit_code(python, made.folder)
            healthy = of_control(file.parent, truth, opened, culprit)
            small = "element" in json.loads((made.folder / MANIFEST).read_text(encoding="utf-8"))["outputs"][0]
            if healthy is not None and small:
                healthy = healthy[culprit.introduced.worst]
            control = None if healthy is None else exit_code(python, made.folder, healthy)
            whole = sum(int(opened.target(name).size) for name in culprit.region.boundary)
            yield Row(truth["name"], truth["precision"], made, script, control, seconds, whole)


def exit_code(python: str, case: Path, value: Array | None = None) -> int:
    """Of the script of a case, with another value of the target where one is given."""
    words: list[str | Path] = [python, case / "repro.py"]
    if value is not None:
        np.save(case / "control.npy", value)
        words += ["--target-output", case / "control.npy"]
    return subprocess.run(words, capture_output=True, check=False).returncode


def of_control(folder: Path, truth: dict[str, Any], opened: Reopened, culprit: Culprit) -> Array | None:
    """The control's value of the culprit, where it was fed what the target was."""
    if not truth.get("control"):
        return None
    try:
        options = options_of(folder, truth, "control")
        other = Reopened(run(options), options)
        for name in culprit.region.boundary:
            mine, its = opened.target(name), other.target(name)
            if mine.shape != its.shape or np.linalg.norm((mine - its).ravel()) > CLOSE * np.linalg.norm(mine.ravel()):
                return None
        return other.target(culprit.region.output)
    except (BisectAlignError, KeyError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--minimize", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    files = [f for f in sorted(options.corpus.rglob("case.json")) if options.only in f.parent.name]
    failed = total = shrunk = 0
    for file in files:
        if json.loads(file.read_text(encoding="utf-8"))["expected"] != "fault":
            continue
        for row in rows(file, options.python, minimize=options.minimize):
            total += 1
            if row.made is None:
                failed += 1
                print(f"{row.case:44} {row.trouble}", flush=True)
                continue
            good = row.made.verified and row.script == 1 and row.control in (0, None)
            failed += not good
            control = "-" if row.control is None else row.control
            seen = "yes" if row.made.verified else "NO"
            shrunk += row.whole >= 20 * row.made.fed
            size = f"{row.whole} -> {row.made.fed}" if options.minimize else ""
            print(
                f"{row.case:44} {row.precision[:4]:4} nodes {row.made.nodes:2} context {row.made.context} seen {seen:3} "
                f"script {row.script} control {control} {row.seconds:5.1f} s  {size}",
                flush=True,
            )
            if options.verbose:
                print("   ", row.made.text, *row.made.notes, sep="\n    ")
    print(f"{total - failed} of {total} are sound" + (f"; {shrunk} shrank by 20 or more" if options.minimize else ""))
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
