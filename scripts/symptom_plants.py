"""Wrong patterns, one at a time, for symptom_table.py: what is done to a tensor, and what a symptom must then be called and say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fault goes. value: as the healthy chip stored it; data: the node's first input; bias: a constant for each channel that
    the node adds; older: another tensor that the chip made before."""

    value: Array
    node: onnx.NodeProto
    data: Array | None
    bias: Array | None
    older: Array | None
    rng: np.random.Generator

    @property
    def channel_axis(self) -> int:
        convolves = self.node.op_type in ("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization")
        return 1 if self.value.ndim >= 4 or convolves else self.value.ndim - 1

    @property
    def sigma(self) -> float:
        return float(np.std(self.value, dtype=np.float64))

    def changed(self, where: Any, how: Callable[[Array], Any]) -> Array:
        t = self.value.copy()
        t[where] = how(t[where])
        return t

    def garble(self, part: Array) -> Array:
        """One of three things that happen to a part: another factor, another sign, values without a pattern."""
        way = int(self.rng.integers(3))
        return part * 1.4 if way == 0 else -part if way == 1 else self.sigma * self.rng.standard_normal(part.shape)


@dataclass(frozen=True, slots=True)
class Planted:
    """wrong: the value; told: whether a symptom's text holds the figures; names: more equivalents, of this draw alone."""

    wrong: Array
    told: Callable[[str], bool] = lambda text: True
    names: frozenset[str] = frozenset()


Plant: TypeAlias = Callable[[Site], "Planted | None"]


# ---- what is planted ----
def _near(text: str, value: float, slack: float = 0.03) -> bool:
    """Some number of the text is the value."""
    for word in text.replace(",", " ").replace("(", " ").replace(";", " ").split():
        try:
            if abs(float(word) - value) <= slack * abs(value):
                return True
        except ValueError:
            continue
    return False


def _scale(site: Site) -> Planted:
    factor = float(np.exp(site.rng.uniform(-0.7, 0.7)))
    return Planted(site.value * factor, lambda text: _near(text, factor))


def _offset(site: Site) -> Planted:
    added = float(site.rng.choice([-1, 1]) * site.rng.uniform(0.1, 1.0)) * site.sigma
    return Planted(site.value + added, lambda text: _near(text, added, 0.1))


def _sign(site: Site) -> Planted:
    return Planted(-site.value if site.rng.random() < 0.7 else np.abs(site.value))


def _permuted(site: Site) -> Planted | None:
    axis, length = site.channel_axis, site.value.shape[site.channel_axis]
    if length < 3:
        return None
    order = np.arange(length)
    way = int(site.rng.integers(3))
    if way == 0:
        first, second = sorted(map(int, site.rng.choice(length, 2, replace=False)))
        order[[first, second]] = second, first
        said = (f"{first} and {second} are swapped", "in reverse order")
        return Planted(np.take(site.value, order, axis), lambda text: any(words in text for words in said))
    order = order[::-1] if way == 1 else site.rng.permutation(length)
    return Planted(np.take(site.value, order, axis), lambda text: f"axis {axis}" in text)


def _transposed(site: Site) -> Planted | None:
    """Two axes of one length exchanged, or memory read in another order of axes."""
    shape = site.value.shape
    equal = [(a, b) for a in range(len(shape)) for b in range(a) if shape[a] == shape[b] > 1]
    if equal and site.rng.random() < 0.5:
        return Planted(np.swapaxes(site.value, *equal[int(site.rng.integers(len(equal)))]).copy())
    if sum(n > 1 for n in shape) < 2:
        return None
    order = [0, *range(2, len(shape)), 1] if len(shape) > 3 else [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return Planted(np.ascontiguousarray(site.value.transpose(order)).reshape(shape))


def _shifted(site: Site) -> Planted | None:
    axes = [a for a in range(max(site.value.ndim - 2, 0), site.value.ndim) if site.value.shape[a] >= 4]
    if not axes:
        return None
    axis, by = int(site.rng.choice(axes)), int(site.rng.choice([-1, 1]))
    wrong = np.roll(site.value, by, axis)
    if site.rng.random() < 0.5:
        entered = [slice(None)] * site.value.ndim
        entered[axis] = slice(0, 1) if by > 0 else slice(-1, None)
        wrong[tuple(entered)] = 0
        return Planted(wrong, lambda text: f"{by:+d} along axis {axis}" in text)
    return Planted(wrong, names=frozenset({"permuted channels"}))  # a shift all round is an order of the indices too


def _border(site: Site) -> Planted | None:
    if site.value.ndim < 4 or min(site.value.shape[-2:]) < 6:
        return None
    sides = [(..., -1, slice(None)), (..., 0, slice(None)), (..., -1), (..., 0)]
    wrong = site.value.copy()
    for side in site.rng.choice(4, int(site.rng.integers(1, 4)), replace=False):
        wrong[sides[side]] = site.garble(wrong[sides[side]])
    return Planted(wrong)


def _one_of(axis: int, site: Site) -> Planted | None:
    """One index of an axis."""
    length = site.value.shape[axis]
    if length < (4 if axis else 2) or site.value.size // length < 8:
        return None
    index = int(site.rng.integers(length))
    where = (slice(None),) * axis + (index,)
    return Planted(site.changed(where, site.garble), lambda text: f"index {index} of" in text)


def _channel(site: Site) -> Planted | None:
    return _one_of(site.channel_axis, site) if site.value.ndim > 1 else None


def _image(site: Site) -> Planted | None:
    return _one_of(0, site) if site.value.ndim > 2 and site.value.shape[0] > 1 else None


def _tile(site: Site) -> Planted | None:
    if site.value.ndim < 2 or min(site.value.shape[-2:]) < 6:
        return None
    where: tuple[Any, ...] = (...,)
    for n in site.value.shape[-2:]:
        size = max(2, n // 4)
        start = int(site.rng.integers(1, n - size))
        where = (*where, slice(start, start + size))
    wrong = site.changed(where, site.garble)
    return Planted(wrong) if np.count_nonzero(wrong != site.value) >= 8 else None


def _elements(site: Site) -> Planted:
    count = int(site.rng.integers(1, min(4, site.value.size // 32 + 1)))
    where = np.unravel_index(site.rng.choice(site.value.size, count, replace=False), site.value.shape)
    return Planted(site.changed(where, lambda part: part + 4 * site.sigma * site.rng.choice([-1, 1], part.shape)))


def _clamped(site: Site) -> Planted | None:
    limit = float(site.rng.uniform(0.4, 0.8)) * float(np.abs(site.value).max())
    beyond = int(np.count_nonzero(np.abs(site.value) > limit))
    beyond = beyond if beyond < 0.8 * site.value.size else 0  # what is all one value is no clamp
    return (
        Planted(np.clip(site.value, -limit, limit), lambda text: _near(text, limit) or _near(text, -limit))
        if beyond >= 4
        else None
    )


def _coarse(site: Site) -> Planted | None:
    if site.rng.random() < 0.5:
        step = site.sigma / float(site.rng.choice([2, 4, 8]))
        return Planted(np.round(site.value / step) * step) if step > 0 else None
    bits = int(site.rng.integers(2, 6))
    with np.errstate(divide="ignore"):
        step = np.exp2(np.floor(np.log2(np.abs(site.value))) - bits)
    rounded = np.where(step > 0, np.rint(site.value / np.where(step > 0, step, 1)) * step, 0)
    return Planted(rounded, lambda text: f"{bits} bits" in text or "multiples of" in text)


def _rounding(site: Site) -> Planted | None:
    """Levels or whole numbers, rounded another way."""
    ways: list[Callable[[Array], Array]] = [np.floor, lambda x: np.floor(x + 0.5), np.trunc, np.ceil]
    way = ways[int(site.rng.integers(len(ways)))]
    if site.data is None or site.node.op_type not in ("Round", "QuantizeLinear") or site.bias is None:
        return None
    scale, zero = site.bias
    levels = way((site.data / scale).astype(np.float64)) + zero
    limits = (
        (-np.inf, np.inf) if site.value.dtype.kind == "f" else (np.iinfo(site.value.dtype).min, np.iinfo(site.value.dtype).max)
    )
    wrong = np.clip(levels, *limits).astype(site.value.dtype)
    return Planted(wrong) if np.count_nonzero(wrong != site.value) >= 8 else None  # of fewer nothing can be said


def _no_activation(site: Site) -> Planted | None:
    curved = (
        "Relu",
        "LeakyRelu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "Gelu",
        "Elu",
        "HardSwish",
        "HardSigmoid",
        "PRelu",
        "Softplus",
        "Erf",
    )
    return None if site.data is None or site.node.op_type not in curved else Planted(site.data.copy())


def _no_bias(site: Site) -> Planted | None:
    return None if site.bias is None or site.node.op_type in ("Round", "QuantizeLinear") else Planted(site.value - site.bias)


def _zeros(site: Site) -> Planted:
    """Not written: a run of memory, or a box."""
    boxed = _tile(site) if site.rng.random() < 0.5 else None
    if boxed is not None:
        return Planted(np.where(boxed.wrong != site.value, 0, site.value), lambda text: "zero" in text)
    start = int(site.rng.integers(site.value.size // 2))
    where = np.unravel_index(np.arange(start, start + site.value.size // 3), site.value.shape)
    return Planted(site.changed(where, lambda part: 0), lambda text: "zero" in text)


def _stale(site: Site) -> Planted | None:
    """A run of memory holds what another tensor left there."""
    if site.older is None or not site.older.size:
        return None
    start = int(site.rng.integers(site.value.size // 2))
    where = np.unravel_index(np.arange(start, start + site.value.size // 3), site.value.shape)
    return Planted(site.changed(where, lambda part: np.resize(site.older, part.shape)))


def _special(value: float) -> Plant:
    def plant(site: Site) -> Planted:
        count = int(site.rng.integers(1, 5))
        where = np.unravel_index(site.rng.choice(site.value.size, count, replace=False), site.value.shape)
        return Planted(site.changed(where, lambda part: value), lambda text: f"{count} of {site.value.size} elements" in text)

    return plant


def _shape(site: Site) -> Planted | None:
    if site.value.ndim < 2 or site.value.shape[-1] < 3:
        return None
    way = int(site.rng.integers(3))
    if way == 0:
        return Planted(site.value[..., :-1].copy(), lambda text: "part of the right values" in text)
    if way == 1:
        return Planted(np.pad(site.value, [(0, 0)] * (site.value.ndim - 1) + [(1, 0)]), lambda text: "right values stand" in text)
    return Planted(site.value.reshape(-1), lambda text: "the values are right" in text)


PLACES = frozenset(
    {"one block", "one image", "some images", "one channel", "some channels", "one row", "some rows", "border only"}
)
# kind -> what plants it, and the names of the first symptom that are right. A box over a whole axis is a row or a channel too, what was
# never written is told by its value or by its place, an operator left out hands its input on.
KINDS: dict[str, tuple[Plant, frozenset[str]]] = {
    "scale": (_scale, frozenset({"scale"})),
    "offset": (_offset, frozenset({"offset"})),
    "sign": (_sign, frozenset({"sign"})),
    "permuted channels": (_permuted, frozenset({"permuted channels"})),
    "transposed axes": (_transposed, frozenset({"transposed axes"})),
    "shift by one": (_shifted, frozenset({"shift by one"})),
    "border only": (_border, frozenset({"border only"})),
    "one channel": (_channel, frozenset({"one channel"})),
    "one image": (_image, frozenset({"one image"})),
    "one tile": (_tile, frozenset({"one block"})),
    "single elements": (_elements, frozenset({"single elements"})),
    "clamp": (_clamped, frozenset({"clamp"})),
    "coarse rounding": (_coarse, frozenset({"coarse rounding"})),
    "rounding": (_rounding, frozenset({"rounding"})),
    "dropped activation": (_no_activation, frozenset({"dropped activation", "passed through"})),
    "dropped bias": (_no_bias, frozenset({"bias", "passed through"})),
    "zero block": (_zeros, frozenset({"zero"}) | PLACES),
    "stale block": (_stale, PLACES),
    "NaN": (_special(np.nan), frozenset({"NaN"})),
    "Inf": (_special(np.inf), frozenset({"Inf"})),
    "wrong shape": (_shape, frozenset({"wrong shape"})),
}
