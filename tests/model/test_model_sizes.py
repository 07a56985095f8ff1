"""Sizes as exporters write them: what is no name and no size is unknown."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from bisect_align.model.infer import tensor_type


@pytest.mark.parametrize(
    ("written", "understood"),
    [(3, 3), (0, 0), ("N", "N"), (-1, None), ("?", None), ("-1", None), ("None", None), ("", None), ("s0*2", "s0*2")],
)
def test_a_size_is_a_number_a_name_or_unknown(written: int | str, understood: int | str | None) -> None:
    proto = helper.make_tensor_type_proto(TensorProto.FLOAT, [written, 8])
    assert tensor_type(proto).shape == (understood, 8)
