"""Misreadings that take more than another attribute: padding, statistics, rounding, gates, axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bisect_align.judgement.rival import NEW, Change, Rival, Site, altered, spelt

Array: TypeAlias = NDArray[Any]


# ---- windows ---------------------------------------------------------------------------------------------------------------
def pads_misread(site: Site) -> Iterator[Rival]:
    """Pads at the other side, of the other axis, in another order, or none; the other ways to pad by itself."""
    now, pads = site.attribute("auto_pad") or "NOTSET", list(site.attribute("pads") or ())
    half = len(pads) // 2
    begin, end = pads[:half], pads[half:]
    orders = {
        "pads at the other side": end + begin,
        "pads of the axes exchanged": begin[::-1] + end[::-1],
        "pads read as begin, end of each axis in turn": pads[0::2] + pads[1::2],
        "pads ignored": [0] * len(pads),
    }
    if now == "NOTSET":
        for text, other in orders.items():
            if pads and other != pads:
                yield Rival(f"{text}, pads={spelt(other)}", (altered(site, {"pads": other}),))
    for mode in ("SAME_UPPER", "SAME_LOWER", "VALID"):
        if mode != now and (mode != "VALID" or not pads):
            yield Rival(f"auto_pad={mode}", (altered(site, {"auto_pad": mode, "pads": None}),))


def per_axis_reversed(name: str) -> Change:
    """Height taken for width in an attribute with one number an axis."""

    def change(site: Site) -> Iterator[Rival]:
        now = list(site.attribute(name) or ())
        if now[::-1] != now:
            yield Rival(f"{name}={spelt(now[::-1])}", (altered(site, {name: now[::-1]}),))

    return change


def ones(name: str) -> Change:
    """Strides or dilations that are not read."""

    def change(site: Site) -> Iterator[Rival]:
        now = list(site.attribute(name) or ())
        if any(n != 1 for n in now):
            yield Rival(f"{name} ignored", (altered(site, {name: [1] * len(now)}),))

    return change


def windows(site: Site) -> tuple[list[int], list[int], list[int]] | None:
    """(pads at the begin, at the end, what ceil_mode adds to the last window) of each spatial axis."""
    x, kernel = site.given(0), site.attribute("kernel_shape")
    if x is None or not kernel or x.ndim != len(kernel) + 2:
        return None
    count, auto = len(kernel), site.attribute("auto_pad") or "NOTSET"
    strides, dilations = (list(site.attribute(n) or [1] * count) for n in ("strides", "dilations"))
    pads = list(site.attribute("pads") or [0] * (2 * count))
    begin, end, extra = pads[:count], pads[count:], [0] * count
    for i, (length, k) in enumerate(zip(x.shape[2:], kernel, strict=True)):
        reach = (k - 1) * dilations[i] + 1
        if auto.startswith("SAME"):
            total = max((-(-length // strides[i]) - 1) * strides[i] + reach - length, 0)
            less, more = total // 2, total - total // 2
            begin[i], end[i] = (less, more) if auto == "SAME_UPPER" else (more, less)
        elif site.attribute("ceil_mode"):
            room = length + begin[i] + end[i] - reach
            extra[i] = max(-(-room // strides[i]) * strides[i] - room, 0)
    return begin, end, extra


def padded(site: Site, text: str, begin: list[int], end: list[int], attributes: Mapping[str, Any]) -> Iterator[Rival]:
    """The pool behind a Pad of zeros; none where nothing is padded."""
    if not any(begin + end):
        return
    pads, name = [0, 0, *begin, 0, 0, *end], f"{NEW}padded"
    pool = altered(site, {"auto_pad": None, **attributes}, {0: name})
    if site.opset < 11:
        yield Rival(text, (helper.make_node("Pad", [site.proto.input[0]], [name], pads=pads), pool))
    else:
        pad = helper.make_node("Pad", [site.proto.input[0], f"{NEW}pads"], [name])
        yield Rival(text, (pad, pool), {f"{NEW}pads": np.array(pads, np.int64)})


def zero_padded(site: Site) -> Iterator[Rival]:
    """MaxPool: the padding counts as zeros instead of minus infinity."""
    if (found := windows(site)) is not None:
        yield from padded(site, "padding with 0", found[0], found[1], {"pads": None})


def divisors(site: Site) -> Iterator[Rival]:
    """AveragePool: what counts as an element of the window."""
    if (found := windows(site)) is None:
        return
    begin, end, extra = found
    none = [0] * len(begin)
    beyond = [a + b for a, b in zip(end, extra, strict=True)]
    whole = "divided by the whole kernel, also where ceil_mode reaches beyond the padding"
    floor = {"ceil_mode": 0} if "ceil_mode" in site.attributes else {}
    yield from padded(site, whole, begin, beyond, {"pads": none + none, "count_include_pad": 1, **floor})
    yield from padded(site, "padding counted at the begin only", begin, none, {"pads": none + end, "count_include_pad": 0})
    yield from padded(site, "padding counted at the end only", none, end, {"pads": begin + none, "count_include_pad": 0})


# ---- statistics ------------------------------------------------------------------------------------------------------------
def statistics_of(blend: float | None) -> Callable[[Site], Mapping[int, Array | None] | None]:
    """BatchNormalization by the statistics of the batch, or by the stored ones with so much of these mixed in."""

    def rewrite(site: Site) -> Mapping[int, Array | None] | None:
        x, mean, var = (site.given(place) for place in (0, 3, 4))
        if x is None or mean is None or var is None or x.ndim < 2:
            return None
        rest = (0, *range(2, x.ndim))
        share = 1.0 if blend is None else blend
        seen = x.astype(np.float64)
        return {
            3: (share * seen.mean(axis=rest) + (1 - share) * mean).astype(mean.dtype),
            4: (share * seen.var(axis=rest) + (1 - share) * var).astype(var.dtype),
        }

    return rewrite


def blended_by_momentum(site: Site) -> Mapping[int, Array | None] | None:
    """As a training step: the stored statistics lose 1 - momentum to those of the batch."""
    momentum = site.attribute("momentum")
    return statistics_of(1 - float(momentum if momentum is not None else 0.9))(site)


def folded_bias_negated(site: Site) -> Mapping[int, Array | None] | None:
    """BatchNormalization folded into a factor and a constant for each channel, and the constant's sign lost on the way."""
    scale, bias, mean, var = (site.given(place) for place in range(1, 5))
    if scale is None or bias is None or mean is None or var is None:
        return None
    epsilon = site.attribute("epsilon")
    folded = bias - mean * scale / np.sqrt(var.astype(np.float64) + (1e-5 if epsilon is None else epsilon))
    return {2: (bias - 2 * folded).astype(bias.dtype)}


def normalised_over_image(site: Site) -> Iterator[Rival]:
    """MeanVarianceNormalization: the other axes that are in use."""
    rank, axes = site.rank, site.attribute("axes") or []
    rest = list(range(2, rank))
    for other in ([0, *rest], rest, list(range(rank))) if rank > 2 else ():
        if other != sorted(int(a) % rank for a in axes):
            yield Rival(f"axes={other}", (altered(site, {"axes": other}),))


def first_image_scaled(site: Site) -> Iterator[Rival]:
    """InstanceNormalization: scale and bias reach the first image of the batch only."""
    x, scale = site.given(0), site.given(1)
    if x is None or scale is None or x.shape[0] < 2:
        return
    names, (out,) = [f"{NEW}{n}" for n in ("first", "others", "scaled", "bare")], site.proto.output
    nodes = (
        helper.make_node(
            "InstanceNormalization", [names[0], *site.proto.input[1:3]], [names[2]], epsilon=site.attribute("epsilon")
        ),
        helper.make_node(
            "InstanceNormalization", [names[1], f"{NEW}1", f"{NEW}0"], [names[3]], epsilon=site.attribute("epsilon")
        ),
        helper.make_node("Concat", names[2:], [out], axis=0),
    )
    fed = {names[0]: x[:1], names[1]: x[1:], f"{NEW}1": np.ones_like(scale), f"{NEW}0": np.zeros_like(scale)}
    yield Rival("scale and bias for the first image of the batch only", nodes, fed)


def loops_over_batch(site: Site) -> Iterator[Rival]:
    """LRN: as many channels as there are images are normalised, the others are only divided by bias^beta."""
    x, size = site.given(0), site.attribute("size")
    if x is None or x.ndim < 3 or not size or x.shape[0] >= x.shape[1]:
        return
    alpha, beta, bias = (float(site.attribute(n)) for n in ("alpha", "beta", "bias"))
    seen, sums = x.astype(np.float64), np.zeros(x.shape)
    for channel in range(x.shape[0]):
        window = slice(max(channel - (size - 1) // 2, 0), channel + size // 2 + 1)
        sums[:, channel] = np.square(seen[:, window]).sum(axis=1)
    yield answer(
        site,
        "only as many channels normalised as there are images",
        (seen / (bias + alpha / size * sums) ** beta).astype(x.dtype),
    )


def reduced_over(site: Site) -> Iterator[Rival]:
    """The Reduce family (axes may be an input): other axes."""
    rank, stated = site.rank, site.attribute("axes")
    axes = site.given(1) if stated is None else stated
    if axes is None or rank < 2:
        return
    now = sorted(int(a) % rank for a in axes)
    rest = [a for a in range(rank) if a not in (0, 1)]
    for other in ([0, *rest], rest, [1, *rest], list(range(rank)), [0], [1], [rank - 1]):
        if other and other != now:
            if stated is None:
                fed = {f"{NEW}1": np.array(other, np.int64)}
                yield Rival(f"axes={other}", (altered(site, {}, {1: f"{NEW}1"}),), fed)
            else:
                yield Rival(f"axes={other}", (altered(site, {"axes": other}),))


def statistics_shared(site: Site) -> Iterator[Rival]:
    """InstanceNormalization with the statistics of the whole batch, as BatchNormalization would."""
    x = site.given(0)
    if x is not None and x.ndim >= 2 and x.shape[0] > 1:
        rest = (0, *range(2, x.ndim))
        seen = x.astype(np.float64)
        stats = {f"{NEW}m": seen.mean(axis=rest).astype(x.dtype), f"{NEW}v": seen.var(axis=rest).astype(x.dtype)}
        names = [*site.proto.input[:3], *stats]
        node = helper.make_node("BatchNormalization", names, list(site.proto.output), epsilon=site.attribute("epsilon"))
        yield Rival("statistics shared over the batch", (node,), stats)


# ---- rounding and tables ---------------------------------------------------------------------------------------------------
WAYS: dict[str, Callable[[Array], Array]] = {
    "rounding half up (floor(x + 0.5))": lambda x: np.floor(x + 0.5),
    "rounding half away from zero": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "rounding half down": lambda x: np.ceil(x - 0.5),
    "truncation towards zero": np.trunc,
    "rounding down (floor)": np.floor,
    "rounding up (ceil)": np.ceil,
}


def answer(site: Site, text: str, values: Array) -> Rival:
    """An answer that was worked out here."""
    return Rival(text, (helper.make_node("Identity", [f"{NEW}0"], list(site.proto.output[:1])),), {f"{NEW}0": values})


def rounds(site: Site) -> Iterator[Rival]:
    """Round: the other ways to treat halves, or to round at all."""
    x = site.given(0)
    if x is not None:
        for text, way in WAYS.items():
            yield answer(site, text, way(x.astype(np.float64)).astype(x.dtype))


def casts(site: Site) -> Iterator[Rival]:
    """Cast of floats to integers: rounding instead of truncation; out of range it ends at the bounds, or goes round."""
    x, to = site.given(0), site.attribute("to")
    if x is None or x.dtype.kind != "f" or to not in (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64):
        return
    kind = helper.tensor_dtype_to_np_dtype(to)
    info = np.iinfo(kind)
    ways: dict[str, Callable[[Array], Array]] = {"rounding to nearest": np.rint, **WAYS}
    for text, way in ways.items():
        whole = np.nan_to_num(way(x.astype(np.float64)))
        yield answer(site, text, np.clip(whole, float(info.min), float(info.max)).astype(kind))
    kept = np.trunc(np.nan_to_num(x.astype(np.float64)))
    yield answer(site, "ending at the bounds of the type", np.clip(kept, float(info.min), float(info.max)).astype(kind))
    span = 2.0 ** (8 * kind.itemsize)
    yield answer(site, "going round beyond the bounds of the type", ((kept - info.min) % span + info.min).astype(kind))


def quantises(site: Site) -> Iterator[Rival]:
    """QuantizeLinear of 8 bits: the other ways to round x / scale, before and after the zero point is added."""
    x, scale, zero = (site.given(place) for place in range(3))
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    if x is None or scale is None or kind not in (np.uint8, np.int8):
        return
    axis = site.attribute("axis")
    if scale.ndim:
        across = [-1 if a == (1 if axis is None else axis) % x.ndim else 1 for a in range(x.ndim)]
        scale, zero = scale.reshape(across), None if zero is None else zero.reshape(across)
    shift = np.float64(0) if zero is None else zero.astype(np.float64)
    scaled = (x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64)
    info = np.iinfo(kind)
    ways = {text: way(scaled) + shift for text, way in WAYS.items()}
    ways |= {f"{text} after the zero point": way(scaled + shift) for text, way in WAYS.items() if np.any(shift != 0)}
    ways["levels held between -127 and 127"] = np.maximum(np.rint(scaled) + shift, info.min + 1)
    for text, levels in ways.items():
        yield answer(site, text, np.clip(np.nan_to_num(levels), info.min, info.max).astype(kind))


def one_hot_negative(site: Site) -> Mapping[int, Array | None] | None:
    """OneHot: a row of off values for negative indices."""
    indices, depth = site.given(0), site.given(1)
    if indices is None or depth is None or not (indices < 0).any():
        return None
    return {0: np.where(indices < 0, depth.reshape(-1)[0] + 1, indices).astype(indices.dtype)}


def narrow(x: Array) -> Array | None:
    """int64 read as int32."""
    return x.astype(np.int32).astype(np.int64) if x.dtype == np.int64 else None


def unsigned(x: Array) -> Array | None:
    """Negative indices taken for 0."""
    return np.maximum(x, 0) if x.dtype.kind == "i" and (x < 0).any() else None


def erf_by(text: str, approximated: Callable[[Array], Array]) -> Change:
    """Erf as Gelu's approximations take it: with u = x sqrt(2), Gelu(u) = u (1 + erf(x)) / 2."""

    def change(site: Site) -> Iterator[Rival]:
        x = site.given(0)
        if x is not None and x.dtype.kind == "f":
            yield answer(site, text, approximated(x.astype(np.float64) * np.sqrt(2)).astype(x.dtype))

    return change


ERF = (  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
    erf_by("the tanh form of Gelu", lambda u: np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3))),
    erf_by("the sigmoid form of Gelu", lambda u: np.tanh(0.851 * u)),
)


# ---- weights and axes ------------------------------------------------------------------------------------------------------
def last_two(x: Array) -> Array | None:
    """The last two axes exchanged, where they are of one length."""
    return np.swapaxes(x, -1, -2) if x.ndim >= 2 and x.shape[-1] == x.shape[-2] else None


def turned(x: Array) -> Array | None:
    """A kernel turned round (convolution for correlation)."""
    return np.flip(x, tuple(range(2, x.ndim))) if x.ndim > 2 else None


def across(place: int, what: str) -> Change:
    """A vector that is broadcast along another axis than its own."""

    def change(site: Site) -> Iterator[Rival]:
        value, x = site.given(place), site.given(1 - place)
        if value is None or x is None or value.size < 2 or value.size != max(value.shape):
            return
        own = x.ndim - value.ndim + value.shape.index(value.size)
        for axis in range(x.ndim):
            if axis != own and x.shape[axis] == value.size:
                shaped = value.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
                name = f"{NEW}{place}"
                yield Rival(f"{what} along axis {axis}", (altered(site, {}, {place: name}),), {name: shaped})

    return change


def first_alone(x: Array) -> Array | None:
    """The first element for all."""
    return np.full_like(x, x.reshape(-1)[0]) if x.size > 1 else None


def gates(*orders: tuple[str, tuple[int, ...]]) -> Change:
    """A recurrent operator whose weights are read in another order of gates."""

    def change(site: Site) -> Iterator[Rival]:
        w, r, b = (site.given(place) for place in (1, 2, 3))
        for text, order in orders:
            if w is None or r is None:
                return
            fed = {f"{NEW}1": _gates(w, order), f"{NEW}2": _gates(r, order)}
            names = {1: f"{NEW}1", 2: f"{NEW}2"}
            if b is not None:
                fed[f"{NEW}3"] = np.concatenate([_gates(half, order) for half in np.split(b, 2, axis=1)], axis=1)
                names[3] = f"{NEW}3"
            yield Rival(text, (altered(site, {}, names),), fed)

    return change


def _gates(weight: Array, order: tuple[int, ...]) -> Array:
    parts = np.split(weight, len(order), axis=1)
    return np.concatenate([parts[i] for i in order], axis=1)


def rearranged(site: Site) -> Iterator[Rival]:
    """Transpose: its inverse, the order reversed, or nothing moved."""
    perm = list(site.attribute("perm") or range(site.rank)[::-1])
    for text, other in (
        ("the inverse perm", list(map(int, np.argsort(perm)))),
        ("perm reversed", perm[::-1]),
        ("perm ignored", list(range(len(perm)))[::-1]),
    ):
        if other != perm:
            yield Rival(f"{text}, perm={other}", (altered(site, {"perm": other}),))


def clamped_points(site: Site) -> Mapping[int, Array | None] | None:
    """GridSample: a point outside the picture is moved inside before its neighbours are taken, instead of each neighbour."""
    x, grid = site.given(0), site.given(1)
    if x is None or grid is None or grid.shape[-1] != x.ndim - 2:
        return None
    sizes = np.array(x.shape[2:][::-1], np.float64)
    edge = np.ones_like(sizes) if site.attribute("align_corners") else 1 - 1 / sizes
    outside = (np.abs(grid) > 1).any(axis=-1, keepdims=True)
    return {1: np.where(outside, np.clip(grid, -edge, edge), grid).astype(grid.dtype)}
