"""How a chip's tool writes down what it computed: which tensors, in which files, as which numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from chip_net import Net
from chip_numbers import Grid
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_NARROW: dict[str, np.dtype[Any]] = {"fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def kept(net: Net, density: float) -> tuple[str, ...]:
    """The tensors that a dump of this density (0 .. 1) holds: evenly spread in file order, graph outputs always."""
    chosen = (int((i + 1) * density + 1e-9) > int(i * density + 1e-9) for i in range(len(net.tensors)))
    return tuple(name for name, chose in zip(net.tensors, chosen, strict=True) if chose or name in net.outputs)


def write(values: Mapping[str, Array], path: Path, form: str, precision: str = "fp32", grids: Mapping[str, Grid] = {}) -> None:
    """One dump at `path`, which must not exist: a folder, or the file itself for npz."""
    FORMS[form](values, path, precision, grids)


def _npy(values: Mapping[str, Array], path: Path, precision: str, grids: Mapping[str, Grid]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for stem, name in _stems(values):
        np.save(path / f"{stem}.npy", values[name])


def _nhwc(values: Mapping[str, Array], path: Path, precision: str, grids: Mapping[str, Grid]) -> None:
    turned = {name: v.transpose(0, 2, 3, 1) if v.ndim == 4 else v for name, v in values.items()}
    _npy({name: np.ascontiguousarray(v) for name, v in turned.items()}, path, precision, grids)


def _npz(values: Mapping[str, Array], path: Path, precision: str, grids: Mapping[str, Grid]) -> None:
    arrays: dict[str, Any] = dict(values)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _bin(values: Mapping[str, Array], path: Path, precision: str, grids: Mapping[str, Grid]) -> None:
    """Raw numbers as the chip holds them (halves, int8 codes with their scale) and a manifest."""
    path.mkdir(parents=True)
    items = []
    for stem, name in _stems(values):
        value, grid = values[name], grids.get(name)
        item: dict[str, Any] = {"file": f"{stem}.bin", "name": name, "shape": list(value.shape)}
        if value.dtype == np.float32 and grid is not None and np.array_equal(grid(value), value):
            item |= {"scale": float(grid.scale), "zero_point": int(grid.zero)}
            value = grid.codes(value)
        elif value.dtype == np.float32:
            value = value.astype(_NARROW.get(precision, value.dtype))
        items.append(item | {"dtype": value.dtype.name})
        (path / f"{stem}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
    (path / "manifest.json").write_text(json.dumps({"tensors": items}), encoding="utf-8")


FORMS: dict[str, Callable[[Mapping[str, Array], Path, str, Mapping[str, Grid]], None]] = {
    "npy": _npy,
    "npz": _npz,
    "bin": _bin,
    "nhwc": _nhwc,
}


def _stems(values: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    """File name without suffix, and tensor; a name that is already taken after cleaning gets a number."""
    taken: set[str] = set()
    for name in values:
        stem = clean = re.sub(r"[^\w.-]", "_", name)[:200]
        while stem.lower() in taken:
            stem = f"{clean}_{len(taken)}"
        taken.add(stem.lower())
        yield stem, name
