"""Faults that the fake chip can plant: what a broken kernel, driver or compiler does to one node's output.

A kind takes the right value and returns the wrong one (same shape), or None where it makes no sense.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_CURVES = ("Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Softplus", "Softsign", "Softmax", "Gelu", "Elu", "Selu", "Celu")
_KINKED = ("Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "HardSigmoid", "HardSwish")
ACTIVATIONS = frozenset(_CURVES + _KINKED)
CHANNELS_FIRST = frozenset(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization"))


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fault is planted: the right value, the operator, what it read (the data input first), its bias if it has one,
    and some other tensor that the chip computed before (for stale buffers)."""

    value: Array
    op: str
    data: Array | None
    bias: Array | None
    stale: Array | None

    @property
    def channel_axis(self) -> int:
        """Axis 1 for images and what convolutions make, the last one for anything else."""
        return 1 if self.value.ndim >= 4 or self.op in CHANNELS_FIRST else self.value.ndim - 1

    @property
    def sigma(self) -> float:
        return float(np.std(self.value, dtype=np.float64))

    def loudest_channel(self) -> tuple[slice | int, ...]:
        """Index of the channel with the most energy: a silent one could be lost unseen."""
        others = tuple(a for a in range(self.value.ndim) if a != self.channel_axis)
        energy = np.square(self.value, dtype=np.float64).sum(axis=others)
        index: list[slice | int] = [slice(None)] * self.value.ndim
        index[self.channel_axis] = int(np.argmax(energy))
        return tuple(index)


Plant: TypeAlias = Callable[[Site], "Array | None"]


def _changed(site: Site, index: Any, value: Any) -> Array:
    y = site.value.copy()
    y[index] = value
    return y


def _flat_changed(site: Site, positions: Any, value: Any) -> Array:
    return _changed(site, np.unravel_index(positions, site.value.shape), value)


def _shift(site: Site) -> Array:
    return np.roll(site.value, 1, axis=-1)


def _permuted(site: Site) -> Array:
    return np.flip(site.value, axis=site.channel_axis).copy()


def _zeroed_channel(site: Site) -> Array:
    return _changed(site, site.loudest_channel(), 0)


def _last_row(site: Site) -> Array | None:
    if site.value.ndim < 2 or site.value.shape[-2] < 2:
        return None
    row = (Ellipsis, -1, slice(None))
    return _changed(site, row, site.value[row] * 0.7)


def _spike(site: Site) -> Array:
    middle = site.value.size // 2
    return _flat_changed(site, middle, site.value.reshape(-1)[middle] + 3 * site.sigma)


def _nan(site: Site) -> Array:
    return _flat_changed(site, np.array([0, site.value.size // 2]), np.nan)


def _saturated(site: Site) -> Array:
    limit = 0.7 * float(np.abs(site.value).max())
    return np.clip(site.value, -limit, limit)


def _dropped_bias(site: Site) -> Array:
    """Without the operator's own bias; where it has none, one channel loses its mean."""
    if site.bias is not None and site.bias.size == site.value.shape[site.channel_axis]:
        shape = [1] * site.value.ndim
        shape[site.channel_axis] = -1
        return site.value - site.bias.reshape(shape)
    channel = site.loudest_channel()
    return _changed(site, channel, site.value[channel] - site.value[channel].mean())


def _dropped_activation(site: Site) -> Array | None:
    return site.data.copy() if site.op in ACTIVATIONS and site.data is not None else None


def _transposed(site: Site) -> Array | None:
    if site.value.ndim < 2 or site.value.shape[-1] != site.value.shape[-2]:
        return None
    return np.swapaxes(site.value, -1, -2).copy()


def _coarse(site: Site) -> Array | None:
    step = site.sigma / 16
    return np.round(site.value / step) * step if step > 0 else None


def _stale_half(site: Site) -> Array | None:
    return None if site.stale is None else _first_half(site, np.resize(site.stale, site.value.size // 2))


def _zero_half(site: Site) -> Array | None:
    return _first_half(site, 0)


def _first_half(site: Site, value: Any) -> Array | None:
    half = site.value.size // 2
    return _flat_changed(site, np.arange(half), value) if half else None


KINDS: dict[str, Plant] = {
    "scale-1.1": lambda site: site.value * 1.1,
    "scale-1.02": lambda site: site.value * 1.02,
    "offset": lambda site: site.value + 0.1 * site.sigma,
    "shift": _shift,
    "permuted-channels": _permuted,
    "zeroed-channel": _zeroed_channel,
    "last-row": _last_row,
    "spike": _spike,
    "nan": _nan,
    "saturation": _saturated,
    "dropped-bias": _dropped_bias,
    "dropped-activation": _dropped_activation,
    "transposed": _transposed,
    "coarse-rounding": _coarse,
    "stale-half": _stale_half,
    "zero-half": _zero_half,
}


def plant(kind: str, site: Site) -> Array | None:
    """The wrong value, float32, of the right shape; None where the kind makes no sense here."""
    value = site.value
    if not np.issubdtype(value.dtype, np.floating) or not value.ndim or not value.size or not np.isfinite(value).all():
        return None
    wrong = KINDS[kind](site)
    return wrong.astype(value.dtype) if wrong is not None and wrong.shape == value.shape else None
