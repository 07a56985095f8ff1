"""A result opened again: the command line that made it is read once more, wherever the user stands by now."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError

from bisect_align.cli.align import align
from bisect_align.cli.values import size, thresholds
from bisect_align.errors import UsageError

if TYPE_CHECKING:
    from bisect_align.result.result import Result
    from bisect_align.session.options import Options


def options_of(result: Result, folder: Path) -> Options:
    """What the run was asked for. Relative paths are looked for from here, then from each folder above the result.

    Raises UsageError where the result does not say how it was made, or the model is nowhere.
    """
    from bisect_align.judgement.policy import AT_LEAST, AT_MOST
    from bisect_align.session.options import Options

    if not result.command:
        raise UsageError("the result does not say by which command it was made", where=str(folder))
    try:
        _, bound, _ = App(default_command=align).parse_args(list(result.command[1:]), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise UsageError("the command of the result cannot be read by this version", where=str(folder)) from error
    said = bound.arguments
    given: dict[str, Any] = {field.name: said[field.name] for field in fields(Options) if field.name in said}
    given |= {"thresholds": thresholds(said.get("threshold", ()), AT_LEAST | AT_MOST), "command": result.command}
    if said.get("memory") is not None:
        given["memory"] = size(said["memory"])
    return _from_where_it_lies(Options(**given), folder)


def _from_where_it_lies(options: Options, folder: Path) -> Options:
    bases = (Path(), *folder.absolute().parents)
    base = next((base for base in bases if (base / options.model).exists()), None)
    if base is None:
        raise UsageError("the model of this run is not there any more", where=str(options.model))
    paths: dict[str, Any] = {f.name: base / v for f in fields(options) if isinstance(v := getattr(options, f.name), Path)}
    paths["repeat_dumps"] = tuple(base / path for path in options.repeat_dumps)
    if options.convention.endswith(".toml"):
        paths["convention"] = str(base / options.convention)
    return replace(options, **paths)
