"""Faults that the fake chip can plant: what a broken kernel, driver or compiler does to one node's output.

A kind takes the right value and returns the wrong one (same shape), or None where it makes no sense. Some spoil the value, some run
the node again as a compiler would that misread an attribute, a weight or an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_CURVES = ("Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "Softplus", "Softsign", "Softmax", "Gelu", "Elu", "Selu", "Celu")
_KINKED = ("Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "HardSigmoid", "HardSwish")
ACTIVATIONS = frozenset(_CURVES + _KINKED)
CHANNELS_FIRST = frozenset(("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization"))
PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
SLIDING = frozenset(("Conv", "ConvTranspose", "MaxPool", "AveragePool"))
NORMS = frozenset(("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"))
ALONG_AXIS = frozenset(("Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "ReduceMax", "Concat", "CumSum", "Gather"))
_ALPHA = {"LeakyRelu": 0.01, "Elu": 1.0, "Selu": 1.67326, "HardSigmoid": 0.2, "Celu": 1.0, "Gemm": 1.0}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a fault is planted: the right value, the node, what it read by name, its data input and its bias if it has them, some
    other tensor that the chip computed before (for stale buffers), and a way to run the node again, changed, on changed values."""

    value: Array
    node: onnx.NodeProto
    opset: int
    read: Mapping[str, Array]
    data: Array | None
    bias: Array | None
    stale: Array | None
    again: Callable[[onnx.NodeProto, Mapping[str, Array]], Array]

    @property
    def channel_axis(self) -> int:
        """Axis 1 for images and what convolutions make, the last one for anything else."""
        return 1 if self.value.ndim >= 4 or self.node.op_type in CHANNELS_FIRST else self.value.ndim - 1

    @property
    def sigma(self) -> float:
        return float(np.std(self.value, dtype=np.float64))

    def channel(self, index: int) -> tuple[slice | int, ...]:
        """All of one channel."""
        chosen: list[slice | int] = [slice(None)] * self.value.ndim
        chosen[self.channel_axis] = index
        return tuple(chosen)

    def loudest_channel(self) -> tuple[slice | int, ...]:
        """The channel with the most energy: a silent one could be lost unseen."""
        others = tuple(a for a in range(self.value.ndim) if a != self.channel_axis)
        return self.channel(int(np.argmax(np.square(self.value, dtype=np.float64).sum(axis=others))))

    def attribute(self, name: str, otherwise: Any = None) -> Any:
        found = next((a for a in self.node.attribute if a.name == name), None)
        return otherwise if found is None else onnx.helper.get_attribute_value(found)

    def with_attribute(self, name: str, value: Any) -> Array:
        """The node run again with another value of an attribute."""
        changed = onnx.NodeProto()
        changed.CopyFrom(self.node)
        del changed.attribute[:]
        changed.attribute.extend(a for a in self.node.attribute if a.name != name)
        changed.attribute.append(onnx.helper.make_attribute(name, value))
        return self.again(changed, {})

    def with_input(self, slot: int, change: Callable[[Array], Array | None]) -> Array | None:
        """The node run again with another value of an input; None where the change makes no sense."""
        if slot >= len(self.node.input) or self.node.input[slot] not in self.read:
            return None
        value = change(self.read[self.node.input[slot]])
        return None if value is None else self.again(self.node, {self.node.input[slot]: np.asarray(value, np.float32)})


Plant: TypeAlias = Callable[[Site], "Array | None"]


# ---- the value is spoilt ----
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


def _scaled_channel(site: Site) -> Array:
    channel = site.loudest_channel()
    return _changed(site, channel, site.value[channel] * 1.3)


def _sign_of_channel(site: Site) -> Array:
    channel = site.loudest_channel()
    return _changed(site, channel, -site.value[channel])


def _last_row(site: Site) -> Array | None:
    if site.value.ndim < 2 or site.value.shape[-2] < 2:
        return None
    row = (Ellipsis, -1, slice(None))
    return _changed(site, row, site.value[row] * 0.7)


def _tile(site: Site) -> Array | None:
    """A block in the middle was never written."""
    if site.value.ndim < 2 or min(site.value.shape[-2:]) < 4:
        return None
    rows, columns = (slice(n // 4, n // 2) for n in site.value.shape[-2:])
    return _changed(site, (Ellipsis, rows, columns), 0)


def _other_image(site: Site) -> Array | None:
    """The first image of a batch for all of them."""
    several = site.value.ndim >= 2 and site.value.shape[0] > 1
    return np.broadcast_to(site.value[:1], site.value.shape).copy() if several else None


def _spike(site: Site) -> Array:
    middle = site.value.size // 2
    return _flat_changed(site, middle, site.value.reshape(-1)[middle] + 3 * site.sigma)


def _nan(site: Site) -> Array:
    return _flat_changed(site, np.array([0, site.value.size // 2]), np.nan)


def _saturated(site: Site) -> Array:
    limit = 0.7 * float(np.abs(site.value).max())
    return np.clip(site.value, -limit, limit)


def _dead_zone(site: Site) -> Array:
    return np.where(np.abs(site.value) < 0.2 * site.sigma, np.float32(0), site.value)


def _dropped_bias(site: Site) -> Array:
    """Without the operator's own bias; where it has none, one channel loses its mean."""
    if site.bias is not None and site.bias.size == site.value.shape[site.channel_axis]:
        shape = [1] * site.value.ndim
        shape[site.channel_axis] = -1
        return site.value - site.bias.reshape(shape)
    channel = site.loudest_channel()
    return _changed(site, channel, site.value[channel] - site.value[channel].mean())


def _dropped_activation(site: Site) -> Array | None:
    return None if site.data is None else site.data.copy()


def _transposed(site: Site) -> Array | None:
    if site.value.ndim < 2 or site.value.shape[-1] != site.value.shape[-2]:
        return None
    return np.swapaxes(site.value, -1, -2).copy()


def _coarse(site: Site) -> Array | None:
    step = site.sigma / 16
    return np.round(site.value / step) * step if step > 0 else None


def _stale_half(site: Site) -> Array | None:
    return None if site.stale is None or not site.stale.size else _first_half(site, np.resize(site.stale, site.value.size // 2))


def _zero_half(site: Site) -> Array | None:
    return _first_half(site, 0)


def _first_half(site: Site, value: Any) -> Array | None:
    half = site.value.size // 2
    return _flat_changed(site, np.arange(half), value) if half else None


# ---- the node is misread ----
def _wrong_padding(site: Site) -> Array | None:
    """The padding of one side at the other."""
    pads = list(site.attribute("pads", ()))
    if not any(pads):
        return None
    half = len(pads) // 2
    for axis in range(half):
        if pads[axis]:
            pads[axis], pads[axis + half] = pads[axis] - 1, pads[axis + half] + 1
    return site.with_attribute("pads", pads)


def _counted_padding(site: Site) -> Array:
    return site.with_attribute("count_include_pad", 1 - int(site.attribute("count_include_pad", 0)))


def _kernel_transposed(site: Site) -> Array | None:
    def swapped(w: Array) -> Array | None:
        square = w.ndim >= 2 and w.shape[-1] == w.shape[-2] > 1
        return np.swapaxes(w, -1, -2).copy() if square else None

    return site.with_input(1, swapped)


def _coarse_weights(site: Site) -> Array | None:
    """Weights of 4 bits."""

    def rounded(w: Array) -> Array | None:
        step = float(np.abs(w).max()) / 7
        return np.rint(w / step) * step if step > 0 else None

    return site.with_input(1, rounded)


def _rotated_weights(site: Site) -> Array | None:
    """The weights of each output channel at its neighbour's place."""
    axis = {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}.get(site.node.op_type, 0 if site.attribute("transB") else -1)
    return site.with_input(1, lambda w: np.roll(w, 1, axis=axis) if w.ndim >= 2 else None)


def _wrong_epsilon(site: Site) -> Array:
    return site.with_attribute("epsilon", 100 * float(site.attribute("epsilon", 1e-5)))


def _wrong_axis(site: Site) -> Array | None:
    """The neighbouring axis, where that gives the same shape."""
    if site.data is None or site.data.ndim < 2:
        return None
    named = "axes" if site.attribute("axes") is not None else "axis"
    given = site.attribute(named)
    if given is None and site.node.op_type.startswith("Reduce"):
        return None
    axis = int(given[0] if named == "axes" else given if given is not None else -1) % site.data.ndim
    other = axis - 1 if axis else 1
    return site.with_attribute(named, [other] if named == "axes" else other)


def _wrong_alpha(site: Site) -> Array:
    return site.with_attribute("alpha", 1.5 * float(site.attribute("alpha", _ALPHA[site.node.op_type])))


def _half_pixel(site: Site) -> Array:
    mode = site.attribute("coordinate_transformation_mode", b"half_pixel")
    return site.with_attribute("coordinate_transformation_mode", "asymmetric" if b"half_pixel" in mode else "half_pixel")


def _swapped_operands(site: Site) -> Array | None:
    swapped = onnx.NodeProto()
    swapped.CopyFrom(site.node)
    swapped.input[0], swapped.input[1] = site.node.input[1], site.node.input[0]
    return site.again(swapped, {})


def _lost_operand(site: Site) -> Array | None:
    """The first operand alone, as where a skip connection was fused away."""
    return None if site.data is None or len(site.node.input) < 2 else site.data.copy()


@dataclass(frozen=True, slots=True)
class Kind:
    """ops: the operators that it suits; empty: any."""

    plant: Plant
    ops: frozenset[str] = frozenset()


KINDS: dict[str, Kind] = {
    "scale-1.1": Kind(lambda site: site.value * 1.1),
    "scale-1.02": Kind(lambda site: site.value * 1.02),
    "offset": Kind(lambda site: site.value + 0.1 * site.sigma),
    "offset-0.02": Kind(lambda site: site.value + 0.02 * site.sigma),
    "shift": Kind(_shift),
    "permuted-channels": Kind(_permuted),
    "zeroed-channel": Kind(_zeroed_channel),
    "scaled-channel": Kind(_scaled_channel),
    "sign-of-channel": Kind(_sign_of_channel),
    "last-row": Kind(_last_row),
    "tile": Kind(_tile),
    "other-image": Kind(_other_image),
    "spike": Kind(_spike),
    "nan": Kind(_nan),
    "saturation": Kind(_saturated),
    "dead-zone": Kind(_dead_zone),
    "dropped-bias": Kind(_dropped_bias),
    "dropped-activation": Kind(_dropped_activation, ACTIVATIONS),
    "transposed": Kind(_transposed),
    "coarse-rounding": Kind(_coarse),
    "stale-half": Kind(_stale_half),
    "zero-half": Kind(_zero_half),
    "wrong-padding": Kind(_wrong_padding, SLIDING),
    "counted-padding": Kind(_counted_padding, frozenset(("AveragePool",))),
    "kernel-transposed": Kind(_kernel_transposed, PRODUCTS),
    "coarse-weights": Kind(_coarse_weights, PRODUCTS),
    "rotated-weights": Kind(_rotated_weights, PRODUCTS),
    "wrong-epsilon": Kind(_wrong_epsilon, NORMS),
    "wrong-axis": Kind(_wrong_axis, ALONG_AXIS),
    "wrong-alpha": Kind(_wrong_alpha, frozenset(_ALPHA)),
    "half-pixel": Kind(_half_pixel, frozenset(("Resize",))),
    "swapped-operands": Kind(_swapped_operands, frozenset(("Sub", "Div", "Pow", "PRelu"))),
    "lost-operand": Kind(_lost_operand, frozenset(("Add", "Mul", "Sub", "Div"))),
}


def suits(kind: str, node: onnx.NodeProto) -> bool:
    """Whether the kind is for this operator; it may still make no sense on the values."""
    return not KINDS[kind].ops or node.op_type in KINDS[kind].ops


def plant(kind: str, site: Site) -> Array | None:
    """The wrong value, float32, of the right shape; None where the kind makes no sense here."""
    value = site.value
    if not np.issubdtype(value.dtype, np.floating) or not value.ndim or not value.size or not np.isfinite(value).all():
        return None
    if not suits(kind, site.node):
        return None
    wrong = KINDS[kind].plant(site)
    return wrong.astype(value.dtype) if wrong is not None and wrong.shape == value.shape else None
