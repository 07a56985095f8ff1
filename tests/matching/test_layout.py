"""Layout fixes: laws over random shapes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bisect_align.matching.layout import Crop, LayoutFix, Reshape, Transpose, fixes

shapes = st.lists(st.integers(1, 5), min_size=0, max_size=5).map(tuple)


def numbered(shape: tuple[int, ...]) -> NDArray[Any]:
    return np.arange(math.prod(shape)).reshape(shape)


@st.composite
def related(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A tensor's shape and one that an entry may have: dims in another order, without 1s, flattened, blocked or padded."""
    tensor = draw(shapes)
    kind = draw(st.sampled_from(["same", "order", "flat", "squeezed", "blocks", "padded", "tiles", "folded", "any"]))
    if kind == "order":
        return tuple(draw(st.permutations(tensor))), tensor
    if kind == "flat":
        return (math.prod(tensor),), tensor
    if kind == "squeezed":
        return tuple(size for size in tensor if size != 1), tensor
    if kind == "any":
        return draw(shapes), tensor
    if kind == "tiles" and len(tensor) >= 2:
        tensor = (*tensor[:-2], draw(st.integers(1, 40)), draw(st.integers(1, 40)))
        high, wide = -(-tensor[-2] // 16), -(-tensor[-1] // (width := draw(st.sampled_from([16, 32]))))
        stack = tensor[:-2]
        stored = [
            (*stack, wide, high, 16, width),
            (*stack, high * 16, wide * width),
            (math.prod(stack) * high * wide * 16 * width,),
        ]
        return draw(st.sampled_from(stored)), tensor
    if kind == "folded" and len(tensor) >= 3:
        axis = draw(st.integers(2, len(tensor) - 1))
        return (*tensor[1:axis], tensor[0] * tensor[axis], *tensor[axis + 1 :]), tensor
    if kind == "blocks" and len(tensor) == 5:
        batch, channels, depth, height, width = tensor
        return (batch, depth, -(-channels // 4), height, width, 4), tensor
    if kind in ("blocks", "padded") and len(tensor) == 4:
        batch, channels, height, width = tensor
        block = draw(st.sampled_from([4, 8, 16]))
        groups = -(-channels // block)
        five_d, first, last = (
            (batch, groups, height, width, block),
            (batch, groups * block, height, width),
            (batch, height, width, groups * block),
        )
        return draw(st.sampled_from([five_d, first] if kind == "blocks" else [first, last])), tensor
    return tensor, tensor


@given(related())
def test_values_are_moved_never_changed(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    entry, tensor = pair
    array = numbered(entry)
    for fix in fixes(entry, tensor):
        moved = fix.apply(array)
        assert moved.shape == tensor == fix.target
        if fix.crops:
            assert len(np.unique(moved)) == moved.size < array.size
            with pytest.raises(ValueError, match="no inverse"):
                fix.invert(moved)
        else:
            assert sorted(moved.ravel()) == sorted(array.ravel())
            assert np.array_equal(fix.invert(moved), array)


@given(related())
@example(((256,), (1, 1, 16, 1)))
def test_no_two_fixes_move_elements_alike_or_share_a_label(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    entry, tensor = pair
    found = fixes(entry, tensor)
    assert len({fix.label for fix in found}) == len(found)
    if 0 not in entry:
        assert len({fix.apply(numbered(entry)).tobytes() for fix in found}) == len(found)
    assert len(found) <= 24


@given(related())
def test_what_is_shown_goes_before_what_is_hidden_and_id_before_all(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    entry, tensor = pair
    found = fixes(entry, tensor)
    assert [fix.label for fix in found].count("id") == (
        tuple(size for size in entry if size != 1) == tuple(size for size in tensor if size != 1)
    )
    assert all(fix.label != "id" for fix in found[1:])
    assert [fix.shown for fix in found] == sorted((fix.shown for fix in found), reverse=True)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple), st.data())
def test_every_order_of_the_dims_is_found(tensor: tuple[int, ...], data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(len(tensor))))
    golden = numbered(tensor)
    entry = golden.transpose(perm)
    assert any(np.array_equal(fix.apply(entry), golden) for fix in fixes(entry.shape, tensor))


@given(shapes, st.data())
def test_fixes_compose(tensor: tuple[int, ...], data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(fixes(tuple(reversed(tensor)), tensor)))
    second = data.draw(st.sampled_from(fixes(tensor, tensor)))
    array = numbered(first.source)
    both = first.then(second)
    assert np.array_equal(both.apply(array), second.apply(first.apply(array)))
    assert np.array_equal(both.invert(both.apply(array)), array)


def test_fixes_that_do_not_meet_are_refused() -> None:
    fix = fixes((2, 3), (2, 3))[0]
    with pytest.raises(ValueError, match="shape"):
        fix.then(fixes((3, 2), (3, 2))[0])
    with pytest.raises(ValueError, match="shape"):
        fix.apply(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="shape"):
        fix.invert(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("entry", "tensor", "label", "shown"),
    [
        ((1, 5, 7, 3), (1, 3, 5, 7), "CL", True),
        ((5, 7, 3), (1, 3, 5, 7), "CL", True),
        ((1, 5, 5, 3), (1, 3, 5, 5), "CL", True),  # equal heights and widths: their order is kept
        ((2, 7, 3), (2, 3, 7), "CL", True),
        ((5, 7, 3), (3, 5, 7), "HWC", True),
        ((7, 3), (3, 7), "p10", True),
        ((1, 7, 1, 3), (1, 3, 7), "CL", True),
        ((2, 5, 3, 7), (2, 3, 5, 7), "p0213", True),
        ((105,), (1, 3, 5, 7), "flat", True),
        ((105,), (1, 3, 5, 7), "flat CL", False),
        ((1, 15, 7), (1, 3, 5, 7), "flat", True),
        ((1, 35, 3), (1, 3, 5, 7), "flat CL", False),
        ((1, 3, 5, 7), (1, 3, 5, 7), "flat CL", False),  # a headerless file is read in the tensor's shape
        ((4, 4), (4, 4), "p10", False),
        ((1, 4, 4, 4), (1, 4, 4, 4), "CL", False),
        ((1, 8, 5, 8), (1, 8, 8, 5), "CL", False),  # which 8 is the channels, the shape does not show
        ((1, 1, 5, 7, 16), (1, 3, 5, 7), "NC1HWC0", True),
        ((1, 16, 5, 7), (1, 16, 5, 7), "blk8", False),
        ((1, 16, 5, 7), (1, 3, 5, 7), "blk16", False),
        ((1, 16, 5, 7), (1, 3, 5, 7), "crop", True),
        ((5, 7, 16), (1, 3, 5, 7), "CL crop", True),
        ((1, 16, 1, 1), (1, 10), "crop", True),
        ((1, 4, 3, 5, 7, 16), (1, 40, 4, 5, 7), "NDC1HWC0", True),
        ((2, 5, 1, 6, 7, 16), (2, 3, 5, 6, 7), "NDC1HWC0", True),
        ((2, 2, 2, 6, 7, 16), (2, 30, 2, 6, 7), "NDC1HWC0", False),  # which 2 is the groups, the shape does not show
        ((2, 3, 16, 16), (41, 30), "FRACTAL_NZ", True),
        ((1, 2, 16, 32), (20, 30), "FRACTAL_NZ", True),
        ((2, 4, 1, 1, 16, 16), (2, 4, 7, 9), "FRACTAL_NZ", True),
        ((48, 32), (48, 32), "nz16", False),
        ((1536,), (41, 30), "nz16", False),
        ((1, 3, 10, 7), (2, 3, 5, 7), "fold2", True),
        ((3, 5, 14), (2, 3, 5, 7), "fold3", True),
    ],
)
def test_kinds_of_layout(entry: tuple[int, ...], tensor: tuple[int, ...], label: str, shown: bool) -> None:
    found = {fix.label: fix.shown for fix in fixes(entry, tensor)}
    assert found.get(label) is shown


def blocked(golden: NDArray[Any], block: int) -> NDArray[Any]:
    """NCHWc as a chip writes it: channels padded, then split, the inner part last."""
    batch, channels, height, width = golden.shape
    groups = -(-channels // block)
    padded = np.zeros((batch, groups * block, height, width), golden.dtype)
    padded[:, :channels] = golden
    return np.ascontiguousarray(padded.reshape(batch, groups, block, height, width).transpose(0, 1, 3, 4, 2))


@given(st.integers(1, 2), st.integers(1, 20), st.integers(1, 4), st.integers(1, 4), st.sampled_from([4, 8, 16]))
def test_blocked_channels_come_back(batch: int, channels: int, height: int, width: int, block: int) -> None:
    golden = 1 + numbered((batch, channels, height, width))
    blocks = blocked(golden, block)
    padded = blocks.shape[1] * block
    for stored in (blocks, blocks.reshape(batch, padded, height, width), blocks.ravel()):
        assert any(np.array_equal(fix.apply(stored), golden) for fix in fixes(stored.shape, golden.shape))


def tiled(golden: NDArray[Any], width: int) -> NDArray[Any]:
    """FRACTAL_NZ as a matrix unit writes it: rows padded to 16, columns to `width`; tile columns outermost. Padding is -1."""
    *stack, rows, columns = golden.shape
    high, wide = -(-rows // 16), -(-columns // width)
    padded = np.full((*stack, high * 16, wide * width), -1, golden.dtype)
    padded[..., :rows, :columns] = golden
    tiles = padded.reshape(*stack, high, 16, wide, width)
    return np.ascontiguousarray(np.moveaxis(tiles, -2, len(stack)))


@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 50), st.integers(1, 50), st.sampled_from([16, 32]), st.booleans())
def test_tiled_matrices_come_back(stack: list[int], rows: int, columns: int, width: int, flat: bool) -> None:
    golden = numbered((*stack, rows, columns))
    stored = tiled(golden, width)
    stored = stored.ravel() if flat else stored
    assert any(np.array_equal(fix.apply(stored), golden) for fix in fixes(stored.shape, golden.shape))


@given(st.integers(1, 2), st.integers(1, 20), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.sampled_from([8, 16]))
def test_blocked_volumes_come_back(batch: int, channels: int, depth: int, height: int, width: int, block: int) -> None:
    golden = 1 + numbered((batch, channels, depth, height, width))
    slices = [blocked(golden[:, :, k], block) for k in range(depth)]
    stored = np.stack(slices, axis=1)  # N, D, C1, H, W, C0
    assert any(np.array_equal(fix.apply(stored), golden) for fix in fixes(stored.shape, golden.shape))


@given(st.lists(st.integers(1, 4), min_size=3, max_size=5), st.data())
def test_a_folded_batch_comes_back(shape: list[int], data: st.DataObject) -> None:
    """The samples side by side along one axis."""
    golden = numbered(tuple(shape))
    stored = np.concatenate(list(golden), axis=data.draw(st.integers(1, len(shape) - 2)))
    assert any(np.array_equal(fix.apply(stored), golden) for fix in fixes(stored.shape, golden.shape))


@pytest.mark.parametrize(
    ("entry", "tensor"),
    [((1, 3, 5, 8), (1, 3, 5, 7)), ((1, 3, 6, 8), (1, 3, 5, 7)), ((1, 7, 5, 7), (1, 3, 5, 7)), ((10,), (3, 4)), ((0,), (3,))],
)
def test_a_wrong_shape_is_no_layout(entry: tuple[int, ...], tensor: tuple[int, ...]) -> None:
    assert fixes(entry, tensor) == ()


def test_headerless_scalar_and_empty() -> None:
    assert [fix.label for fix in fixes(None, (2, 3))] == ["flat"]
    assert [fix.label for fix in fixes((1,), ())] == ["id"]
    assert fixes((0, 4), (4, 0))[0].apply(np.zeros((0, 4))).shape == (4, 0)


def test_a_fix_is_plain_data() -> None:
    (fix, *_) = fixes((1, 5, 7, 16), (1, 3, 5, 7))
    assert fix == LayoutFix((1, 5, 7, 16), (Transpose((0, 3, 1, 2)), Crop((1, 3, 5, 7))), "CL crop")
    assert fixes((6,), (2, 3))[0].steps == (Reshape((2, 3)),)
    assert not any(first == second for first, second in itertools.combinations(fixes((4, 4, 4), (4, 4, 4)), 2))
