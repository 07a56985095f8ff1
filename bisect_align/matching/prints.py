"""Fingerprints: what tells at a glance that two arrays cannot be the same values in two layouts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.matching.fit import carries_evidence
from bisect_align.metrics.inner import inner
from bisect_align.model.dtypes import is_float

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Print:
    """What two layouts of the same values share: their number, norm, sum, sum of absolute values, extremes.

    shape: of the layout at hand. digest: of the bytes in C order (equal for Identity and Reshape).
    """

    shape: tuple[int, ...]
    size: int
    norm: float
    total: float
    absolute: float
    low: float
    high: float
    digest: bytes

    @property
    def marks(self) -> tuple[float, ...]:
        """The figures by which prints of one size are told apart, in units of the norm. A relative L2 error of r moves none of the
        first three by more than r."""
        scale = max(self.norm, 1e-30)
        root = float(np.sqrt(self.size))
        return (1.0, self.total / (root * scale), self.absolute / (root * scale), self.low / scale, self.high / scale)


def fingerprint(values: Array) -> Print | None:
    """None for values that are no real numbers or carry no evidence."""
    if not is_float(values.dtype) or not carries_evidence(values):
        return None
    flat = values.reshape(-1).astype(np.float32)
    finite = flat[np.isfinite(flat)].astype(np.float64)
    digest = hashlib.blake2b(flat.tobytes(), digest_size=16).digest()
    return Print(
        shape=values.shape,
        size=flat.size,
        norm=float(np.sqrt(inner(finite, finite))),
        total=float(finite.sum()),
        absolute=float(np.abs(finite).sum()),
        low=float(finite.min()),
        high=float(finite.max()),
        digest=digest,
    )
