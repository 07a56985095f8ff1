"""Element types by name, as headers and manifests write them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bisect_align.errors import DumpError

NATIVE = ("bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
EXTENDED = tuple(
    name
    for name in (
        *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e4m3", "float8_e3m4"),
        *("float8_e4m3b11fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2"),
    )
    if hasattr(ml_dtypes, name)
)
NAMELESS = ("<f1", "|f1")
"""What numpy writes for some of the one-byte floats of ml_dtypes: which one is lost."""
SHORT = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "f16": "float16", "f32": "float32", "f64": "float64"}
SHORT |= {
    "half": "float16",
    "double": "float64",
    "bf16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}


def _extended(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def named(name: str) -> np.dtype[Any]:
    """The type that a manifest means. Raises DumpError, also for "float", which means 32 bits to some and 64 to others."""
    plain = name.strip().lower()
    plain = SHORT.get(plain, plain)
    if plain in NATIVE:
        return np.dtype(plain)
    if plain in EXTENDED:
        return _extended(plain)
    if len(plain) <= 3 and plain[:1] in "<>" and plain[1:2] in "biuf":
        return described(plain)
    raise DumpError(f"the type {name[:40]!r} is not known", hint=f"one of {', '.join(NATIVE + EXTENDED)}")


def described(descr: object) -> np.dtype[Any]:
    """The type that the `descr` of an .npy header means. Raises DumpError for objects, records and nameless bytes.

    numpy writes a bfloat16 array of ml_dtypes as "<V2" (plain void would be "|V2"), and ml_dtypes has no other type of two
    bytes; "<V1" may be any of its one-byte types, so it is refused.
    """
    if descr in ("<V2", "bfloat16"):
        return _extended("bfloat16")
    if isinstance(descr, str) and descr in EXTENDED:
        return _extended(descr)
    try:
        dtype = np.dtype(descr) if isinstance(descr, str) else None
    except Exception:  # numpy answers with many kinds of error to a malformed description
        dtype = None
    if descr in NAMELESS or (dtype is not None and dtype.kind == "V"):
        why = f"the header's type {str(descr)[:60]!r} does not say what its bytes mean"
        raise DumpError(why, hint="save it as float32, or as raw bytes with a manifest")
    if dtype is None:
        raise DumpError(f"the header's type {str(descr)[:60]!r} is not a plain one")
    if dtype.kind == "O":
        raise DumpError("holds Python objects (pickle), which are never loaded", hint="save it as numbers")
    if dtype.kind not in "biufcUS" or dtype.itemsize == 0 or dtype.name in ("longdouble", "float128", "complex256"):
        raise DumpError(f"the header's type {dtype.str!r} is not one of a tensor")
    return dtype
