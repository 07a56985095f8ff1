"""`repro`: single-operator cases from a result (its culprits), or from a model (every operator)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bisect_align.cli.align import Flag

OUT = Path("bisect-align-repro")


def repro(
    source: Path,
    /,
    *,
    out: Annotated[Path, Parameter(name=("--out", "-o"))] = OUT,
    tensor: str | None = None,
    context: int = 0,
    minimize: Flag = False,
    all: Flag = False,
    distinct: Flag = False,
    inputs: Path | None = None,
    quiet: Flag = False,
    verbose: Flag = False,
) -> int:
    """Cut operators out as cases that stand alone: the culprits of a result, or every operator of a model.

    repro RESULT [--tensor T] [--context N] [--minimize] -o DIR: a folder a culprit, with model, inputs, golden, the target's output
    and a script that runs with numpy and onnxruntime alone. Exit code: 0 all show the failure of the run (or a tensor of your choice,
    that nobody accuses, is healthy), 1 one does not, or the dump is another by now, 2 trouble.

    repro MODEL --all [--distinct] [--inputs PATH] -o DIR: a folder an operator, with real and edge-value inputs and their goldens,
    to try a target before the model itself; the command compare judges what it returns.

    Parameters
    ----------
    source
        A result.json, or the folder that holds it; with --all, an ONNX model.
    out
        Folder for the cases.
    tensor
        Cut out the region of this tensor instead of the culprits.
    context
        Take in the neighbours: so many dumped tensors above and below (for faults of fused operators).
    minimize
        Cut the case down to one wrong element and what computes it.
    all
        Every operator of the model, instead of the culprits of a result.
    distinct
        With --all: operators that differ in nothing but their values once.
    inputs
        With --all: the inputs of the model. Default: inputs.npz or test_data_set_0 beside it.
    quiet
        Print the folders only.
    verbose
        Show the traceback of an internal error.
    """
    from bisect_align.cli.output import say
    from bisect_align.cli.reopen import options_of
    from bisect_align.errors import UsageError
    from bisect_align.repro.chosen import chosen
    from bisect_align.repro.write import write
    from bisect_align.result.escape import visible
    from bisect_align.result.files import read
    from bisect_align.session.reopen import Reopened

    if context < 0:
        raise UsageError(f"{context} is no number of neighbours", where="--context", hint="0 or more")
    if all and (tensor is not None or minimize or context):
        raise UsageError("--tensor, --context and --minimize are for a result", where="--all", hint="repro RESULT, without --all")
    if all:
        return _every(source, out, inputs, distinct=distinct, quiet=quiet)
    if source.suffix == ".onnx" or distinct or inputs is not None:
        raise UsageError(
            "a model goes with --all, a result without", where=str(source), hint="repro MODEL --all, or repro RESULT"
        )
    result = read(source)
    opened = Reopened(result, options_of(result, source))
    sound = True
    for name, culprit in chosen(opened, result, tensor):
        made = write(opened, result, culprit, out / name, context=context, minimize=minimize)
        sound &= made.verified
        say(visible(str(made.folder) if quiet else f"{made.folder}: {made.sentence}"))
        for note in () if quiet else made.notes:
            say(visible(f"  {note}"))
    return 0 if sound else 1


def _every(model: Path, out: Path, inputs: Path | None, *, distinct: bool, quiet: bool) -> int:
    from bisect_align.cli.output import say
    from bisect_align.cli.progress import progress
    from bisect_align.repro.every import LAYOUT, write_every
    from bisect_align.result.escape import visible

    bar = progress(quiet=quiet)
    try:
        made = write_every(model, out, inputs=inputs, distinct=distinct, progress=bar)
    finally:
        bar.close()
    say(visible(f"{made.folder}: {made.cases} cases, {made.sets} sets of inputs"))
    if not quiet:
        for node, reason in made.skipped:
            say(visible(f"  no case of {node}: {reason}"))
        say(f"Run each on the target and write {LAYOUT}.")
        say(visible(f"Then: bisect-align compare {out} OUTPUTS"))
    return 0
