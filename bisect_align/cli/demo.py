"""A real fault with a real dump, so that one command shows what the tool does."""

from __future__ import annotations

import shlex
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bisect_align.errors import OutputError

FOLDER = Path("bisect-align-demo")
_STORY = """\
A real fault: the AveragePool of opset 19 in ONNX Runtime 1.23.0 leaves the end
padding out of its divisor (microsoft/onnxruntime issue 24681).
{folder} now holds a model, its inputs, and what that version computed.
The same as

  {command}
"""


def demo(*, out: Annotated[Path, Parameter(name=("--out", "-o"))] = FOLDER) -> int:
    """Copy a model and the dump of a faulty runtime to a folder, and find the fault.

    Parameters
    ----------
    out
        Folder for the model, the dump and the result.
    """
    from bisect_align.cli.output import say
    from bisect_align.cli.run import run_and_print
    from bisect_align.result.escape import visible
    from bisect_align.session.options import Options

    unpack(out)
    options = Options(model=out / "model.onnx", target_dump=out / "dump", out=out / "result")
    command = ("bisect-align", str(options.model), "--target-dump", str(options.target_dump), "-o", str(options.out))
    say(_STORY.format(folder=visible(str(out)), command=visible(shlex.join(command))))
    return run_and_print(replace(options, command=command))


def unpack(folder: Path) -> None:
    """Copy the demo's files. Raises OutputError where the folder holds something else or cannot be written."""
    data = resources.files("bisect_align") / "demo"
    model = folder / "model.onnx"
    try:
        used = folder.exists() and any(folder.iterdir())
        if used and not (model.is_file() and model.read_bytes() == (data / "model.onnx").read_bytes()):
            raise OutputError("holds something else than an earlier demo", where=str(folder), hint="name another folder with -o")
        _copy(data, folder)
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(error.filename or folder)) from error


def _copy(source: Traversable, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for item in source.iterdir():
        if item.is_dir():
            _copy(item, target / item.name)
        else:
            (target / item.name).write_bytes(item.read_bytes())
