"""The main command: a model and a target's dump in, a verdict out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from bisect_align.cli.run import OUT, run_and_print

Flag: TypeAlias = Annotated[bool, Parameter(negative=(), show_default=False)]
Precision: TypeAlias = Literal["auto", "fp32", "tf32", "fp16", "bf16", "int8"]
Policy: TypeAlias = Literal["calibrated", "classic", "classic:loose"]
Metrics: TypeAlias = Literal["plain", "full"]


def align(
    model: Path,
    /,
    *,
    target_dump: Path,
    inputs: Path | None = None,
    out: Annotated[Path, Parameter(name=("--out", "-o"))] = OUT,
    map: Path | None = None,
    convention: str = "auto",
    sample: int = 0,
    golden_dump: Path | None = None,
    quantized_model: Path | None = None,
    quant_params: Path | None = None,
    precision: Precision = "auto",
    policy: Policy = "calibrated",
    threshold: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    metrics: Metrics = "plain",
    repeat_dump: Annotated[tuple[Path, ...], Parameter(negative=(), show_default=False)] = (),
    scan: Flag = False,
    repro: Path | None = None,
    drill: Flag = False,
    memory: str | None = None,
    json: Flag = False,
    quiet: Flag = False,
    verbose: Flag = False,
    command: Annotated[tuple[str, ...], Parameter(parse=False)] = (),
) -> int:
    """Find the node of an ONNX model whose result is wrong in a target's dump, and prove it.

    The golden values come from ONNX Runtime on the CPU, optimisations off.

    Exit code: 0 aligned, 1 any other verdict, 2 trouble, 130 interrupted.

    Parameters
    ----------
    model
        The ONNX model that the target ran.
    target_dump
        What the target computed: a folder of tensors, or one .npz, .safetensors or manifest .json.
    inputs
        The inputs of that run: .npz, a folder of .npy, or test_data_set_0. Default: those in the dump, else inputs.npz or
        test_data_set_0 beside the model.
    out
        Folder for result.json and tensors.csv.
    map
        TOML or JSON file that says which entry of the dump is which tensor.
    convention
        Whose rules for names, types and files to read the dump by: a name (see the command conventions), a .toml file of your own, or
        auto. The values tell the layout.
    sample
        Which sample of a dump of several is read, counted from 0.
    golden_dump
        Golden values from elsewhere, instead of ONNX Runtime's.
    quantized_model
        The QDQ or QOperator twin that the target ran; regions are judged against it.
    quant_params
        JSON file of scales for integer entries: zero_point (subtracted, ONNX) or offset (added, AIMET and QNN).
    precision
        Number format of the target; inferred unless given.
    policy
        How much error is too much: what the precision explains (calibrated), or fixed thresholds (classic: cosine, then PSNR, then
        the largest error).
    threshold
        A limit of your own on any metric of tensors.csv, such as cosine=0.99 or max_abs=1e-3; may be given several times. With a
        classic policy, your limits stand in the place of its own.
    metrics
        full: also KL divergence, histogram distance, median relative error, and Top-1/Top-5 agreement of class scores.
    repeat_dump
        A further dump of the same run, to see which values the target does not make again; may be given several times.
    scan
        Judge every region and list all culprits, instead of stopping at the first proof.
    repro
        Folder for a case of each culprit that stands alone: model, inputs, golden, the target's output and a script.
    drill
        Walk around in the result afterwards (see the command drill).
    memory
        How much to use at most, such as 2G. Default: a quarter of what is free.
    json
        Print result.json instead of the report.
    quiet
        Print the verdict line only.
    verbose
        Show the traceback of an internal error.
    """
    from bisect_align.cli.values import size, thresholds
    from bisect_align.judgement.policy import AT_LEAST, AT_MOST
    from bisect_align.session.options import Options

    options = Options(
        model=model,
        target_dump=target_dump,
        inputs=inputs,
        out=out,
        map=map,
        convention=convention,
        sample=sample,
        golden_dump=golden_dump,
        quantized_model=quantized_model,
        quant_params=quant_params,
        precision=precision,
        policy=policy,
        thresholds=thresholds(threshold, AT_LEAST | AT_MOST),
        metrics=metrics,
        repeat_dumps=repeat_dump,
        scan=scan,
        memory=size(memory) if memory is not None else None,
        command=("bisect-align", *command),
    )
    return run_and_print(options, repro=repro, drill=drill, json=json, quiet=quiet)
