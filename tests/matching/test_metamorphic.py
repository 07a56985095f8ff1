"""What must not change the answer: how tensors are spelt, how files lie in folders, and what else lies there.

Three real runs, each told anew in many ways: a healthy one, one whose bug bears exact names, and one whose names are aliases (a fused
kernel's result under the name of its first operator).
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisect_align.dumps.catalogue import catalogue
from bisect_align.result.result import Verdict
from bisect_align.session.match import match
from bisect_align.session.options import Options
from bisect_align.session.run import run

Array = NDArray[Any]
MODELS = Path(__file__).resolve().parents[2] / "models"
CASES = ["healthy/ort-mnist-fp16", "bugs/ort-averagepool19-end-padding", "bugs/mnn-clip-upper-bound-only"]


@dataclass(frozen=True)
class Dumped:
    """One entry of a real dump: the tensor that its name means ("" for one that means none), its operator, its values."""

    stem: str
    tensor: str
    op: str
    values: Array


@dataclass(frozen=True)
class Told:
    """A real run: how it is asked for, what it holds, and the answer to the dump as it came."""

    options: Options
    entries: tuple[Dumped, ...]
    answer: tuple[Verdict | None, tuple[str, ...]]


def answer(options: Options) -> tuple[Verdict | None, tuple[str, ...]]:
    result = run(options)
    return result.verdict, tuple(one.region.output for one in result.culprits)


@cache
def told(name: str) -> Told:
    folder = MODELS / name
    truth = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    options = Options(model=folder / truth["model"], inputs=folder / truth["inputs"], target_dump=folder / truth["dump"])
    means = {row.entry: (row.named or row.tensor, row.op) for row in match(options).rows if row.rule != "value"}
    held = catalogue(options.target_dump).entries
    entries = [Dumped(one.names[0], *means.get(one.key, ("", "")), np.asarray(one.load())) for one in held]
    assert sum(bool(one.tensor) for one in entries) > 10
    return Told(options, tuple(entries), answer(options))


def test_the_answers_are_those_of_the_truth() -> None:
    """Else there would be nothing to keep."""
    healthy, exact, aliases = (told(name).answer for name in CASES)
    assert healthy == (Verdict.ALIGNED, ())
    assert exact == (Verdict.FAULT, ("/smooth/AveragePool_output_0",))
    assert aliases == (Verdict.FAULT, ("/clamp/Clip_output_0",))


def save(path: Path, values: Array) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.save(file, values)


def kept(case: Told, dump: Path) -> None:
    assert answer(replace(case.options, target_dump=dump)) == case.answer


# ---- spelling --------------------------------------------------------------------------------------------------------------
SPELLINGS: Mapping[str, Callable[[Dumped], str]] = {
    "slash to underscore": lambda e: e.tensor.replace("/", "_"),
    "slash and dot to underscore": lambda e: re.sub(r"[./]", "_", e.tensor),
    "slash to underscore, colon to dash, last 240": lambda e: re.sub(r"[\\/ ]", "_", e.tensor).replace(":", "-")[-240:],
    "each but letters, digits, underscore and dash": lambda e: re.sub(r"[^a-zA-Z0-9_-]", "_", e.tensor),
    "each but letters and digits": lambda e: re.sub(r"[^a-zA-Z0-9]", "_", e.tensor),
    "runs, underscore before a digit": lambda e: re.sub(r"^(?![^\W\d])", "_", re.sub(r"\W+", "_", e.tensor)),
    "no leading underscore": lambda e: re.sub(r"[^a-zA-Z0-9]", "_", e.tensor).lstrip("_"),
    "lower case": lambda e: re.sub(r"[^a-zA-Z0-9]", "_", e.tensor).lower(),
    "folders": lambda e: e.tensor.lstrip("/"),
    "with the operator": lambda e: f"{e.tensor.replace('/', '_')}_{e.op}",
    "with a type": lambda e: f"{e.tensor.replace('/', '_')}_f32",
    "with a number before": lambda e: f"{len(e.stem):03}_{e.tensor.replace('/', '_')}",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", CASES)
def test_spelling(tmp_path: Path, name: str, spelling: str) -> None:
    case = told(name)
    for one in case.entries:
        save(tmp_path / "dump" / f"{SPELLINGS[spelling](one) if one.tensor else one.stem}.npy", one.values)
    kept(case, tmp_path / "dump")


@pytest.mark.parametrize("name", CASES)
def test_names_inside_a_container(tmp_path: Path, name: str) -> None:
    case = told(name)
    with (tmp_path / "dump.npz").open("wb") as file:
        np.savez(file, **{one.tensor or one.stem: one.values for one in case.entries})  # type: ignore[arg-type]
    kept(case, tmp_path / "dump.npz")


# ---- order -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_order_of_files(tmp_path: Path, name: str, seed: int) -> None:
    """In a container and in a folder, where they are also of different ages."""
    case = told(name)
    shuffled = random.Random(seed).sample(case.entries, len(case.entries))
    for age, one in enumerate(shuffled):
        path = tmp_path / "dump" / f"{one.stem}.npy"
        save(path, one.values)
        os.utime(path, (1.7e9 + age, 1.7e9 + age))
    kept(case, tmp_path / "dump")
    with (tmp_path / "dump.npz").open("wb") as file:
        np.savez(file, **{one.stem: one.values for one in shuffled})  # type: ignore[arg-type]
    kept(case, tmp_path / "dump.npz")


# ---- folders ---------------------------------------------------------------------------------------------------------------
def halves(entries: tuple[Dumped, ...]) -> Iterator[str]:
    yield from ("first" if k < len(entries) // 2 else "second" for k in range(len(entries)))


FOLDERS: Mapping[str, Callable[[tuple[Dumped, ...]], Iterator[str]]] = {
    "one more": lambda entries: iter(["run/0/tensors"] * len(entries)),
    "two halves": halves,
    "by turns": lambda entries: (f"part{k % 3}" for k in range(len(entries))),
    "one beside the rest": lambda entries: ("late" if k == 3 else "." for k in range(len(entries))),
}


@pytest.mark.parametrize("folders", FOLDERS)
@pytest.mark.parametrize("name", CASES)
def test_folders(tmp_path: Path, name: str, folders: str) -> None:
    case = told(name)
    for one, folder in zip(case.entries, FOLDERS[folders](case.entries), strict=True):
        save(tmp_path / "dump" / folder / f"{one.stem}.npy", one.values)
    kept(case, tmp_path / "dump")


# ---- what else lies there --------------------------------------------------------------------------------------------------
def texts(dump: Path) -> None:
    (dump / "README.md").write_text("# A dump\n\nconv1 is fine.\n")
    (dump / "run.log").write_text("[info] conv1 took 3 ms\n" * 40)
    (dump / "LICENSE").write_text("Do what you like.\n")
    (dump / "timings").write_text("1.25\n3.5\n")
    (dump / "options.json").write_text('{"chip": "none", "tensors": 3}')
    (dump / ".DS_Store").write_bytes(b"\0\0\0\1Bud1\0\0\x10\0")
    (dump / "empty.txt").write_bytes(b"")


def arrays(dump: Path) -> None:
    rng = np.random.default_rng(1)
    for stem, shape in (("anchors", (9, 4)), ("mean_std", (2, 3)), ("workspace_0", (1, 17, 5, 3)), ("calibration", (64,))):
        save(dump / f"{stem}.npy", rng.standard_normal(shape).astype(np.float32))
    save(dump / "labels.npy", np.arange(1000))
    (dump / "blob.bin").write_bytes(rng.bytes(4096))


def damaged(dump: Path) -> None:
    (dump / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00{'descr'")
    (dump / "broken.npz").write_bytes(b"PK\3\4 nothing")
    (dump / "broken.pb").write_bytes(b"\xff" * 64)


def model_beside(dump: Path) -> None:
    (dump / "model.onnx").write_bytes(b"\x08\x0a")
    (dump / "model.onnx.data").write_bytes(bytes(1024))
    (dump / "graph.json").write_text('{"graph": {"nodes": []}}')


@pytest.mark.parametrize("more", [texts, arrays, damaged, model_beside], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", CASES)
def test_unrelated_files(tmp_path: Path, name: str, more: Callable[[Path], None]) -> None:
    case = told(name)
    for one in case.entries:
        save(tmp_path / "dump" / f"{one.stem}.npy", one.values)
    more(tmp_path / "dump")
    kept(case, tmp_path / "dump")
