"""`match`: which entry of a dump is which tensor, without judging anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bisect_align.cli.align import Flag


def match(
    model: Path,
    /,
    *,
    target_dump: Path,
    inputs: Path | None = None,
    map: Path | None = None,
    write_map: Annotated[Path | None, Parameter(name="--write-map")] = None,
    convention: str = "auto",
    sample: int = 0,
    quantized_model: Path | None = None,
    quant_params: Path | None = None,
    memory: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    verbose: Flag = False,
) -> int:
    """Show which entry of a dump is which tensor of the model, how that is known, and what is left over.

    Every match is checked by value: the tensor is predicted from the entries above it. Exit code: 0, or 2 for trouble.

    Parameters
    ----------
    model
        The ONNX model that the target ran.
    target_dump
        What the target computed: a folder of tensors, or one .npz, .safetensors or manifest .json.
    inputs
        The inputs of that run. Default: those in the dump, else inputs.npz or test_data_set_0 beside the model.
    map
        TOML or JSON file that says which entry of the dump is which tensor.
    write_map
        Write the match as such a file, to be edited and given back with --map.
    convention
        Toolchain that wrote the dump (bisect-align conventions lists them), or the path of your own .toml; recognised unless given.
        The values tell the layout.
    sample
        Which sample of a dump with several (Result_0, Result_1 ...).
    quantized_model
        The QDQ or QOperator twin that the target ran; its tensors are matched.
    quant_params
        JSON file of scales for integer entries: zero_point (subtracted, ONNX) or offset (added, AIMET and QNN).
    memory
        How much to use at most, such as 2G. Default: a quarter of what is free.
    json
        Print everything as JSON.
    quiet
        Print the counts only.
    verbose
        Show the traceback of an internal error.
    """
    from bisect_align.cli.output import say, show
    from bisect_align.cli.progress import progress
    from bisect_align.cli.values import size
    from bisect_align.report.match import headline, report
    from bisect_align.result.files import replace_text, to_json
    from bisect_align.session.match import map_text
    from bisect_align.session.match import match as matched
    from bisect_align.session.options import Options

    bar = progress(quiet=quiet)
    try:
        found = matched(
            Options(
                model=model,
                target_dump=target_dump,
                inputs=inputs,
                map=map,
                convention=convention,
                sample=sample,
                quantized_model=quantized_model,
                quant_params=quant_params,
                memory=size(memory) if memory is not None else None,
            ),
            bar,
        )
    finally:
        bar.close()
    if write_map is not None:
        replace_text(write_map, map_text(found))
    if json:
        say(to_json(found).decode(), end="")
        return 0
    show(headline(found) if quiet else report(found))
    if write_map is not None and not quiet:
        say(f"\nWritten: {write_map}; edit it and give it back with --map")
    return 0
