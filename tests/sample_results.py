"""Results made by hand, and a strategy for any Result: what the tests of result, report and cli share."""

from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any

from hypothesis import strategies as st

from bisect_align.result.result import (
    BoundaryTensor,
    Certificate,
    Consumed,
    Coverage,
    CrossingInfo,
    Culprit,
    Figures,
    GoldenInfo,
    InputInfo,
    Kind,
    NodeInfo,
    Noise,
    NotJudged,
    PolicyInfo,
    RegionInfo,
    Result,
    SearchInfo,
    State,
    Suspect,
    SuspectedEntry,
    Symptom,
    TargetInfo,
    TensorRow,
    Verdict,
)

ZERO = Figures(elements=1200, cosine=1.0, max_abs=0.0, rel_l2=0.0, sqnr=float("inf"), exact=True)
OFF = Figures(
    elements=1200,
    cosine=0.98929898,
    max_abs=1.3615677,
    rel_l2=0.16385756,
    sqnr=15.71,
    mismatched=180,
    worst=(0, 3, 29, 0),
    worst_golden=2.0423517,
    worst_target=3.4039195,
)


def fault(name: str = "/smooth/AveragePool") -> Result:
    """A run that convicts one node and suspects another."""
    output = f"{name}_output_0"
    attributes = {"auto_pad": "SAME_UPPER", "count_include_pad": "1", "kernel_shape": "[5, 1]"}
    node = NodeInfo(index=7, name=name, op="AveragePool", domain="", outputs=(output,), attributes=attributes)
    region = RegionInfo(output=output, boundary=("/r2/Relu_output_0",), nodes=(node,))
    noise = Noise(expected=1.2e-7, score=682_000.0, precision="fp32", hides=4.8e-7)
    parent = BoundaryTensor("/r2/Relu_output_0", State.GOOD, "target dump", ZERO)
    culprit = Culprit(
        kind=Kind.WRONG_RESULT,
        region=region,
        introduced=OFF,
        noise=noise,
        certificate=Certificate(boundary=(parent,), replay=OFF, consumed=Consumed.YES, by=("/res3/Add_output_0",)),
        accumulated=OFF,
        inherited=ZERO,
        symptoms=(Symptom("border", "only the last two rows of axis 2 are wrong", 0.9),),
        hypotheses=("count_include_pad ignored at the end side",),
    )
    suspect_node = NodeInfo(index=12, name="/c5/Conv", op="Conv", domain="", outputs=("/c5/Conv_output_0",), attributes={})
    suspect = Suspect(
        region=RegionInfo("/c5/Conv_output_0", (output,), (suspect_node,)),
        introduced=OFF,
        noise=Noise(expected=1e-7, score=1.4, precision="fp32", hides=4e-7),
        reason="between suspect and convict",
    )
    return Result(
        summary=f"{name} (AveragePool, node 7) computes a wrong result: 180 of 1200 elements off, relative error 0.164.",
        verdict=Verdict.FAULT,
        complete=True,
        culprits=(culprit,),
        suspects=(suspect,),
        crossings=(CrossingInfo(output, (parent,), OFF),),
        tensors=(
            TensorRow(
                "/r2/Relu_output_0",
                6,
                "/r2/Relu",
                "Relu",
                State.GOOD,
                entry="_r2_Relu_output_0.npy",
                rule="exact",
                accumulated=ZERO,
            ),
            TensorRow(
                output,
                7,
                name,
                "AveragePool",
                State.BAD,
                entry="pool.npy",
                rule="exact",
                accumulated=OFF,
                introduced=0.164,
                score=682e3,
            ),
            TensorRow("/c4/Conv_output_0", 8, "/c4/Conv", "Conv", State.UNKNOWN, reason="not in the dump"),
        ),
        coverage=Coverage(
            tensors=20,
            observed=18,
            by_rule={"exact": 17, "value": 1},
            not_dumped=2,
            ambiguous=0,
            entries=19,
            used=18,
            unmatched=("_extra.npy",),
            colliding=(),
            unreadable=(),
            outputs_missing=("logits",),
        ),
        inputs=(InputInfo("x", "float32", (1, 3, 40, 40), "inputs.npz", ZERO),),
        golden=GoldenInfo("ONNX Runtime 1.32.0 (CPU)", "model.onnx", "0" * 64, 20, False),
        target=TargetInfo("dump", 19, "fp32", "errors of 17 tensors fit float32 rounding"),
        policy=PolicyInfo("calibrated", {"cosine": 0.99}),
        search=SearchInfo(rounds=2, passes=2, probes=14, replays=3),
        not_judged=(NotJudged("logits", "after the first conviction"),),
        warnings=("2 tensors are not in the dump",),
        next=("Read the attributes auto_pad and count_include_pad of this node in the target's compiler.",),
        command=("bisect-align", "model.onnx", "--target-dump", "dump"),
        environment={"onnxruntime": "1.32.0"},
        timing={"total": 0.42},
    )


def aligned() -> Result:
    return Result(summary="18 of 20 tensors follow the golden within fp32 rounding.", verdict=Verdict.ALIGNED, complete=True)


def dump_suspect() -> Result:
    entry = SuspectedEntry("relu_3.npy", "/r3/Relu_output_0", "its consumers follow from the golden value")
    return Result(
        summary="The entry relu_3.npy is stale.", verdict=Verdict.DUMP_SUSPECT, complete=True, suspected_entries=(entry,)
    )


def interrupted() -> Result:
    return Result(summary="Interrupted in the first golden pass.", verdict=None, complete=False)


def anything(kind: Any = Result, text: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Any]:
    """Any value of a type of the result, every field filled; text: for the strings in it."""
    text = st.text(max_size=12) if text is None else text
    if is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        filled = {item.name: anything(hints[item.name], text) for item in fields(kind) if item.name != "schema"}
        return st.builds(kind, **filled)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is UnionType or origin is typing.Union:
        return st.one_of(*(anything(part, text) for part in inner))
    if origin is tuple:
        return st.lists(anything(inner[0], text), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(text, anything(inner[1], text), max_size=2)
    if kind is Any:
        return st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text
    simple = {str: text, float: st.floats(), int: st.integers(-(2**53), 2**53), NoneType: st.none(), bool: st.booleans()}
    return simple[kind] if kind in simple else st.sampled_from(kind)
