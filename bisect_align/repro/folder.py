"""A repro as files: written aside, then put in place; nothing but an earlier repro is ever overwritten."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, numpy_helper

from bisect_align.errors import ModelError, OutputError
from bisect_align.model.dtypes import is_half_type, numpy_dtype
from bisect_align.repro.alone import DATA, MANIFEST
from bisect_align.repro.content import Array, Content
from bisect_align.result import files

SCHEMA, SCHEMA_INDEX = "bisect-align/repro/1", "bisect-align/repros/1"
MODEL, UPCAST, INDEX = "model.onnx", "model_float32.onnx", "index.json"
_LONGEST = 40  # characters of a name that becomes part of a folder's
_HINT = "name another folder with -o"


def safe(text: str) -> str:
    """A stranger's name as part of a file name: letters, digits and _ only."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text)[:_LONGEST].strip("_") or "node"


def check(folder: Path, marker: str = MANIFEST) -> None:
    """Raise OutputError unless the folder is new, empty, or holds an earlier one of ours (by its marker file)."""
    if folder.is_symlink():  # the link would be renamed, not the folder
        raise OutputError("is no folder", where=str(folder), hint=_HINT)
    files.check(folder, marker, "repro")


def put_in_place(folder: Path, fill: Callable[[Path], Path], marker: str = MANIFEST) -> None:
    """Let `fill` write aside, in the folder that it is given; the one that it answers with takes the name. Raises OutputError; what
    was there stays in that case."""
    check(folder, marker)
    aside = folder.with_name(f".writing-{os.getpid()}-{folder.name}")
    old = folder.with_name(f".old-{os.getpid()}-{folder.name}")
    try:
        aside.mkdir(parents=True)
        made = fill(aside)
        if folder.exists():
            folder.rename(old)
        made.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise OutputError(f"cannot be written: {error.strerror or error}", where=str(folder), hint=_HINT) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def write_values(folder: Path, content: Content) -> None:
    """Models, inputs, goldens, the target's outputs, what noise explains. Raises OSError, ModelError (over 2 GB)."""
    folder.mkdir(parents=True, exist_ok=True)
    write_model(folder / MODEL, content.model)
    if content.upcast is not None:
        write_model(folder / UPCAST, content.upcast)
    write_arrays(folder / DATA, content.model, [g.values for g in content.inputs], [e.golden for e in content.outputs])
    for k, expected in enumerate(content.outputs):
        np.save(folder / f"noise_{k}.npy", expected.sigma, allow_pickle=False)
        if expected.target is not None:
            np.save(folder / f"target_output_{k}.npy", expected.target, allow_pickle=False)


def write_arrays(folder: Path, model: ModelProto, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """input_k and output_k as .npy in the type of the golden model, and as .pb in that of the model itself (rounded, where that is
    a half)."""
    folder.mkdir()
    for stem, values, stated in (("input", inputs, model.graph.input), ("output", outputs, model.graph.output)):
        for k, (array, info) in enumerate(zip(values, stated, strict=True)):
            np.save(folder / f"{stem}_{k}.npy", array, allow_pickle=False)
            wanted = numpy_dtype(info.type.tensor_type.elem_type)
            with np.errstate(over="ignore"):
                kept = np.asarray(array if wanted is None else array.astype(wanted, copy=False), order="C")
            (folder / f"{stem}_{k}.pb").write_bytes(numpy_helper.from_array(kept, info.name).SerializeToString())


def half_names(values: Sequence[ValueInfoProto]) -> list[str]:
    """For each input or output of a model: float16 or bfloat16 where that is its own type (`.npy` then holds float32), else ""."""
    kinds = [info.type.tensor_type.elem_type for info in values]
    return [str(numpy_dtype(kind)) if is_half_type(kind) else "" for kind in kinds]


def write_words(folder: Path, manifest: Mapping[str, Any], readme: str) -> None:
    """repro.json, README.md and the script. Raises OSError."""
    (folder / MANIFEST).write_bytes(files.to_json(manifest))
    (folder / "README.md").write_text(readme, encoding="utf-8")
    script = resources.files("bisect_align.repro") / "alone.py"
    (folder / "repro.py").write_bytes(script.read_bytes())


def write_model(file: Path, model: ModelProto) -> None:
    """Raises OSError, ModelError (over 2 GB)."""
    try:
        content = model.SerializeToString()
    except ValueError as error:
        raise ModelError("the cut model is over 2 GB", where=file.name, hint="its weights do not fit in one file") from error
    file.write_bytes(content)
