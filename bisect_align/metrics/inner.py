"""The inner product of two vectors, on the calling thread, and what is told with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def inner(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Sum of x * y, two float64 vectors of one length.

    Not `x @ y`: BLAS wakes all its threads for 10,000 elements, and waits for them; on a busy machine that takes a thousand times
    as long as the product.
    """
    return float(np.einsum("i,i->", x, y))


def norm(x: NDArray[Any]) -> float:
    """Euclidean length of a float64 vector."""
    return math.sqrt(inner(x, x))


def relative(error: float, level: float) -> float:
    """error / level; where the level is zero, 0 for no error and infinite for any."""
    if level > 0:
        return error / level
    return 0.0 if error == 0 else math.inf
