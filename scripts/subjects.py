"""Models that the fault matrix runs on, and inputs for them by seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import small_nets
from chip_laws import LAWS
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

SEEDS = 6
"""How many inputs each model is run on."""


@dataclass(frozen=True)
class Subject:
    """A model under test. inputs: seed -> values by name."""

    name: str
    model: onnx.ModelProto
    inputs: Callable[[int], dict[str, Array]]

    @property
    def precisions(self) -> tuple[str, ...]:
        """Those of chips that it runs on: a model that holds its quantisation is computed in floats of 32 or 16 bits."""
        quantised = any("Quant" in node.op_type for node in self.model.graph.node)
        return ("fp32", "fp16") if quantised else tuple(LAWS)


def small_subjects() -> Iterator[Subject]:
    """The generated nets."""
    for name, build in small_nets.GRAPHS.items():
        model = build()
        yield Subject(name, model, lambda seed, model=model: small_nets.inputs_of(model, seed))


def subjects_in(folder: Path) -> Iterator[Subject]:
    """Each *.onnx with an inputs.npz beside it. inputs-SEED.npz, where there is one, is used for that seed; other seeds vary
    inputs.npz."""
    for path in sorted(folder.rglob("*.onnx")):
        given = path.parent / "inputs.npz"
        if given.exists():
            yield Subject(path.parent.name if path.stem == "model" else path.stem, onnx.load(path), _Inputs(given))


@dataclass(frozen=True)
class _Inputs:
    first: Path

    def __call__(self, seed: int) -> dict[str, Array]:
        own = self.first.with_name(f"inputs-{seed}.npz")
        with np.load(own if own.exists() else self.first, allow_pickle=False) as archive:
            values = dict(archive)
        return values if own.exists() or seed == 0 else {name: _varied(v, seed) for name, v in values.items()}


def _varied(x: Array, seed: int) -> Array:
    """Moved along the last axis, and noise of a twentieth of the spread within the old range."""
    rng = np.random.default_rng([seed, x.size])
    if x.ndim and x.shape[-1] > 1:
        x = np.roll(x, int(rng.integers(1, x.shape[-1])), axis=-1)
    if x.dtype.kind != "f" or not x.size or not float(np.std(x)):
        return x
    noisy = x + 0.05 * float(np.std(x)) * rng.standard_normal(x.shape)
    return np.clip(noisy, x.min(), x.max()).astype(x.dtype)


def held_back(subject: Subject, seed: int) -> bool:
    """Whether nothing was tuned on it: a third of the models, and a third of the seeds of the others."""
    return zlib.crc32(subject.name.encode()) % 3 == 0 or seed % 3 == 2
