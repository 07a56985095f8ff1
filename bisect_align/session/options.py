"""What a user asks of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """precision: auto, fp32, tf32, fp16, bf16 or int8. policy: calibrated, classic or classic:loose. thresholds: metric -> limit.

    quantized_model: the QDQ or QOperator twin that the target ran; regions are judged against it. quant_params: JSON file of
    scales for integer entries. memory: bytes for cached sessions and loaded tensors (None: a quarter of what is free). out: where
    the result is written. convention: name or TOML file of the rules to read the dump by; auto: those whose marks it bears.
    sample: which one of a dump of several, from 0. repeat_dumps: further dumps of the same run, to see what is not deterministic.
    metrics: plain, or full (also those that cost a sort or a histogram).
    """

    model: Path
    target_dump: Path
    inputs: Path | None = None
    out: Path | None = None
    map: Path | None = None
    convention: str = "auto"
    sample: int = 0
    golden_dump: Path | None = None
    quantized_model: Path | None = None
    quant_params: Path | None = None
    precision: str = "auto"
    policy: str = "calibrated"
    thresholds: Mapping[str, float] = field(default_factory=dict)
    metrics: str = "plain"
    repeat_dumps: tuple[Path, ...] = ()
    scan: bool = False
    memory: int | None = None
    command: tuple[str, ...] = ()
