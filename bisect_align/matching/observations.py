"""What the matching found: which entry is which tensor, with its evidence, and the target's values on demand."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bisect_align.dumps.entry import Entry
from bisect_align.matching.claims import Claim
from bisect_align.matching.fit import Fit, read
from bisect_align.matching.layout import LayoutFix

Array: TypeAlias = NDArray[Any]


class Status(StrEnum):
    """named: fits the prediction. alias: fits another tensor of the chain than the named one. name-only: carries no evidence.

    unsupported: fits nothing, stays where its name says (a fault looks like this). wrong-shape: the same, no layout explains it.
    assumed: its name alone says so, since a sample of the dump showed that names hold.
    """

    NAMED = "named"
    ALIAS = "alias"
    NAME_ONLY = "name-only"
    UNSUPPORTED = "unsupported"
    WRONG_SHAPE = "wrong-shape"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Observation:
    """tensor: where the entry was put; claim: what its name said. residual: relative L2 from the prediction. otherwise: the layout
    under which alone the entry would fit, where the dump has not shown it: that, or a fault that reorders."""

    tensor: str
    claim: Claim
    status: Status
    residual: float
    fix: LayoutFix | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    otherwise: str = ""

    @property
    def supported(self) -> bool:
        return self.status in (Status.NAMED, Status.ALIAS)

    @property
    def confidence(self) -> float:
        """A coarse figure for reports: how much stands behind this observation."""
        base = {
            Status.NAMED: 1.0,
            Status.ALIAS: 0.9,
            Status.NAME_ONLY: 0.5,
            Status.UNSUPPORTED: 0.6,
            Status.WRONG_SHAPE: 0.6,
            Status.ASSUMED: 0.8,
        }[self.status]
        return round(base * (0.8 if self.claim.weak and not self.supported else 1.0), 2)


def observation(tensor: str, claim: Claim, status: Status, got: Fit) -> Observation:
    """The observation that a fit amounts to."""
    return Observation(tensor, claim, status, got.residual, got.fix, got.values.dtype, got.values.shape, got.otherwise)


class Observations:
    """The target's values by tensor name, graph inputs among them. Entries are read when asked for; a few are kept.

    memory: bytes of loaded values that may be kept.
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        inputs: Mapping[str, Array],
        placed: dict[str, Observation],
        memory: int = 256 << 20,
    ) -> None:
        self.entries, self.inputs, self.placed = entries, inputs, placed
        self._memory, self._held = memory, 0
        self._kept: OrderedDict[str, Array] = OrderedDict()

    def __contains__(self, name: object) -> bool:
        return name in self.placed or name in self.inputs

    def value(self, name: str) -> Array:
        """The target's value in the tensor's own layout and type. Raises KeyError for a tensor that is not observed, DumpError
        where its file has become unreadable."""
        if name not in self.placed:
            return self.inputs[name]
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        values = self.read(self.placed[name])
        self.keep(name, values)
        return values

    def read(self, seen: Observation) -> Array:
        """The values of an observation, from its file."""
        raw = read(self.entries[seen.claim.entry], seen.dtype, seen.shape)
        return raw if seen.fix is None else seen.fix.apply(raw)

    def keep(self, name: str, values: Array) -> None:
        """Remember values that were just read."""
        self.forget(name)
        self._kept[name] = values
        self._held += values.nbytes
        while self._held > self._memory and len(self._kept) > 1:
            self._held -= self._kept.popitem(last=False)[1].nbytes

    def forget(self, name: str) -> None:
        """Drop what is remembered of a tensor (its placement changed)."""
        if name in self._kept:
            self._held -= self._kept.pop(name).nbytes
