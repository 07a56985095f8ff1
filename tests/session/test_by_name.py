"""Where names hold, a search reads a sample and what it asks for; where they do not, or prove too little, the whole dump."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from tiny_target import channel, model_of, node, normal, run_target, scaled

from bisect_align.dumps.entry import Array, Entry, Expect
from bisect_align.matching.observations import Status
from bisect_align.result.result import Verdict
from bisect_align.session.case import Case, prepare
from bisect_align.session.compose import compose
from bisect_align.session.hunt import Hunt
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT

LENGTH = 600
INPUTS = {"x": normal(1, 4, 8)}


def chain(scale: float = 0.1, gain: float = 1.1) -> onnx.ModelProto:
    """Add and Mul by turns: y0 ... y599."""
    nodes, weights = [], {}
    for k in range(LENGTH):
        weights[f"c{k}"] = normal(k, 8, scale=scale) if k % 2 else np.array(1 / gain if k % 4 else gain, np.float32)
        nodes.append(node("Add" if k % 2 else "Mul", f"{'x' if k == 0 else f'y{k - 1}'} c{k}", f"y{k}"))
    return model_of(nodes, {"x": (4, 8)}, weights=weights)


MODEL = chain()


def hunted(tmp_path: Path, values: dict[str, Array], **options: object) -> tuple[Hunt, set[str]]:
    """The hunt when it has ended, and the entries that it read."""
    onnx.save(MODEL, tmp_path / "model.onnx")
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    np.savez(tmp_path / "dump.npz", **values)
    asked = Options(
        model=tmp_path / "model.onnx",
        target_dump=tmp_path / "dump.npz",
        inputs=tmp_path / "inputs.npz",
        **options,  # type: ignore[arg-type]
    )
    case = prepare(asked)
    seen: set[str] = set()
    watch(case, seen)
    hunt = Hunt(case, SILENT)
    hunt.run()
    return hunt, seen


def watch(case: Case, seen: set[str]) -> None:
    def watched(entry: Entry) -> Entry:
        def reader(expect: Expect | None) -> Array:
            seen.add(entry.key)
            return entry.load(expect)

        return replace(entry, reader=reader)

    case.entries = {key: watched(entry) for key, entry in case.entries.items()}
    case.catalogue = replace(case.catalogue, entries=tuple(case.entries.values()))


def test_a_fault_is_found_without_reading_most_of_the_dump(tmp_path: Path) -> None:
    values = {k: v for k, v in run_target(MODEL, INPUTS, "fp16", {"y377": channel(1, -3.0)}).items() if k != "x"}
    hunt, seen = hunted(tmp_path, values)
    result = compose(hunt, 0.0)
    assert [c.region.output for c in result.culprits] == ["y377"]
    assert all(o.status is Status.ASSUMED for o in hunt.evidence.matched.placed.values())
    assert len(seen) < 0.6 * LENGTH


def test_the_same_culprit_is_found_when_everything_is_read(tmp_path: Path) -> None:
    values = {k: v for k, v in run_target(MODEL, INPUTS, "fp16", {"y377": channel(1, -3.0)}).items() if k != "x"}
    hunt, seen = hunted(tmp_path, values, scan=True)
    assert "y377" in [c.region.output for c in compose(hunt, 0.0).culprits]
    assert len(seen) == LENGTH


def test_a_clean_bill_needs_the_whole_dump(tmp_path: Path) -> None:
    values = {k: v for k, v in run_target(MODEL, INPUTS, "fp16").items() if k != "x"}
    hunt, seen = hunted(tmp_path, values)
    assert compose(hunt, 0.0).verdict is Verdict.ALIGNED
    assert hunt.findings.full
    assert len(seen) == LENGTH


def test_a_dump_whose_names_all_lie_accuses_nobody(tmp_path: Path) -> None:
    """Each entry bears the name of the tensor before the one whose value it is."""
    values = {k: v for k, v in run_target(MODEL, INPUTS, "fp16").items() if k != "x"}
    lying = {f"y{k}": values[f"y{min(k + 1, LENGTH - 1)}"] for k in range(LENGTH)}
    hunt, _ = hunted(tmp_path, lying)
    result = compose(hunt, 0.0)
    assert result.verdict is Verdict.UNDECIDED
    assert "right model" in result.summary


def test_weights_of_another_training_accuse_nobody(tmp_path: Path) -> None:
    """The target ran an older model of the same shape: most operators seem wrong, so the model is asked about instead."""
    older = chain(scale=0.4, gain=1.4)
    values = {k: v for k, v in run_target(older, INPUTS, "fp16").items() if k != "x"}
    hunt, _ = hunted(tmp_path, values)
    result = compose(hunt, 0.0)
    assert result.verdict is Verdict.UNDECIDED
    assert "right model" in result.summary


def test_one_file_that_is_wrong_is_no_fault(tmp_path: Path) -> None:
    values = {k: v for k, v in run_target(MODEL, INPUTS, "fp16").items() if k != "x"}
    values["y599"] = scaled(1.0)(values["y599"])
    values["y300"] = normal(7, 4, 8)
    hunt, _ = hunted(tmp_path, values)
    assert compose(hunt, 0.0).verdict is not Verdict.FAULT
