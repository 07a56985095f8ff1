"""The one object that a run answers with. Terminal, JSON, CSV and later views read it and judge nothing themselves.

All floats may be NaN or infinite; in JSON they are the strings "nan", "inf", "-inf". Figures that were not computed are None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bisect_align.result.repeats import Repeats

SCHEMA = "bisect-align/result/1"


class State(StrEnum):
    """Of a tensor: within the policy, beyond it, or not comparable (the reason stands beside it)."""

    GOOD = "GOOD"
    BAD = "BAD"
    UNKNOWN = "UNKNOWN"


class Verdict(StrEnum):
    """The answers of a complete run; trouble is no verdict."""

    INPUT_MISMATCH = "input-mismatch"
    GOLDEN_SUSPECT = "golden-suspect"
    FAULT = "fault"
    DUMP_SUSPECT = "dump-suspect"
    UNDECIDED = "undecided"
    ACCUMULATION = "accumulation"
    ALIGNED = "aligned"


class Kind(StrEnum):
    """What sort of fault a culprit is."""

    WRONG_RESULT = "wrong-result"
    WRONG_SHAPE = "wrong-shape"
    NON_FINITE = "non-finite"
    PRECISION_LOSS = "precision-loss"


class Consumed(StrEnum):
    """Whether what stands below a convicted tensor was computed from the wrong value."""

    YES = "consumed"
    NO = "not-consumed"
    UNSEEN = "not-seen-downstream"


@dataclass(frozen=True, slots=True)
class Figures:
    """Error figures of one pair of tensors (see metrics.measure for each definition); None = not computed.

    kl, histogram, median_rel, top1, top5: on request only (see metrics.distributions).
    """

    elements: int = 0
    cosine: float | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    mse: float | None = None
    rmse: float | None = None
    rel_l2: float | None = None
    rel_rmse: float | None = None
    psnr: float | None = None
    sqnr: float | None = None
    max_rel: float | None = None
    mean_rel: float | None = None
    max_ulp: float | None = None
    mismatched: int = 0
    nan_golden: int = 0
    nan_target: int = 0
    inf_golden: int = 0
    inf_target: int = 0
    exact: bool = False
    worst: tuple[int, ...] | None = None
    worst_golden: float | None = None
    worst_target: float | None = None
    kl: float | None = None
    histogram: float | None = None
    median_rel: float | None = None
    top1: float | None = None
    top5: float | None = None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One operator of the model: index in topological order, name as in the file (may be empty)."""

    index: int
    name: str
    op: str
    domain: str
    outputs: tuple[str, ...]
    attributes: dict[str, str]

    @property
    def operator(self) -> str:
        """Its op, behind the domain where that is not ONNX's own."""
        return f"{self.domain}.{self.op}" if self.domain else self.op


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """The nodes between an observed tensor and its boundary, without Constant nodes."""

    output: str
    boundary: tuple[str, ...]
    nodes: tuple[NodeInfo, ...]

    @property
    def ops(self) -> tuple[str, ...]:
        """Each op once, in the order of the nodes."""
        return tuple(dict.fromkeys(node.op for node in self.nodes))


@dataclass(frozen=True, slots=True)
class Noise:
    """What a healthy target of this precision introduces in the region.

    expected: relative L2 of the modelled noise; score: introduced error over what noise explains (convicted above 2);
    hides: the largest relative L2 error, spread like the noise, that would not be convicted here.
    """

    expected: float
    score: float
    precision: str
    hides: float
    statistic: str = ""


@dataclass(frozen=True, slots=True)
class BoundaryTensor:
    """A tensor that the region was replayed on: where its values came from and how far they are from the golden's."""

    tensor: str
    state: State
    source: str
    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """The figures that prove a culprit: what it was fed, what it should have made of it, and who read the wrong value.

    deterministic: whether further dumps of the same run hold this very value; None where there is none to compare with.
    """

    boundary: tuple[BoundaryTensor, ...]
    replay: Figures
    consumed: Consumed
    by: tuple[str, ...] = ()
    deterministic: bool | None = None


@dataclass(frozen=True, slots=True)
class Symptom:
    """What the error looks like, with the figure behind it."""

    name: str
    text: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """A region whose introduced error noise cannot explain.

    gain: as in TensorRow. same_as: outputs of equal culprits (same operators and attributes, same look of the error): the first of
    a group names all others, each other one names the first.
    """

    kind: Kind
    region: RegionInfo
    introduced: Figures
    noise: Noise
    certificate: Certificate
    accumulated: Figures | None = None
    inherited: Figures | None = None
    gain: float | None = None
    symptoms: tuple[Symptom, ...] = ()
    hypotheses: tuple[str, ...] = ()
    same_as: tuple[str, ...] = ()
    witness: str | None = None
    repro: str | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """A region scored between suspect and convict: listed, never an accusation."""

    region: RegionInfo
    introduced: Figures
    noise: Noise
    reason: str


@dataclass(frozen=True, slots=True)
class SuspectedEntry:
    """An entry that is wrong while its consumers follow from the right value: the file, not the operator."""

    entry: str
    tensor: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotJudged:
    """An observed tensor whose region was not judged, and why."""

    tensor: str
    reason: str


@dataclass(frozen=True, slots=True)
class CrossingInfo:
    """A BAD tensor whose boundary is all GOOD: where accumulated error crosses the threshold."""

    tensor: str
    boundary: tuple[BoundaryTensor, ...]
    accumulated: Figures


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of the graph, compared or not. output: it is an output of the graph.

    The budget of a judged region, relative L2 errors (None where the region was not judged, or a value cannot be had):
    introduced: the target against the region replayed on the target's own boundary values, as it was judged. inherited: that
    replay against the golden, what came in from above. gain: inherited over the largest accumulated error at the boundary, what
    the region makes of an error that comes in (1: passed on, below: damped, above: amplified); None where nothing came in.
    hides: the largest error, spread like the noise, that would not be convicted here.
    """

    name: str
    order: int
    node: str
    op: str
    state: State
    reason: str = ""
    entry: str | None = None
    rule: str | None = None
    fix: str | None = None
    confidence: float | None = None
    accumulated: Figures | None = None
    introduced: float | None = None
    inherited: float | None = None
    gain: float | None = None
    hides: float | None = None
    score: float | None = None
    output: bool = False


@dataclass(frozen=True, slots=True)
class Contributor:
    """A healthy region whose introduced error reaches an output (see judgement.contributions).

    without: relative L2 of the output if this region alone had introduced none. together: if neither it nor those before it had.
    """

    region: RegionInfo
    introduced: float
    without: float
    together: float


@dataclass(frozen=True, slots=True)
class Accumulation:
    """What the error of an output is made of, where no region is at fault.

    error: relative L2 of the output. crosses: the first tensor on the way there that is beyond the limit, its boundary within.
    contributors: regions that were found to matter, most first, each of which lessens what those before it leave. tried: how many
    regions were tried, of how many above the output (regions) that introduced an error.
    """

    output: str
    error: float
    crosses: str | None
    contributors: tuple[Contributor, ...]
    tried: int
    regions: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts over the tensors of the graph and the entries of the dump; every tensor and every entry is in one class."""

    tensors: int
    observed: int
    by_rule: dict[str, int]
    not_dumped: int
    ambiguous: int
    entries: int
    used: int
    unmatched: tuple[str, ...]
    colliding: tuple[str, ...]
    unreadable: tuple[str, ...]
    outputs_missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One graph input of the run; checked: figures against the dump's own copy, where it holds one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: str
    checked: Figures | None = None


@dataclass(frozen=True, slots=True)
class GoldenInfo:
    """What the target was compared with. model_sha256 is of the model file as given."""

    source: str
    model: str
    model_sha256: str
    nodes: int
    upcast: bool


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """The dump as found; precision: of the run, with the evidence for it."""

    dump: str
    entries: int
    precision: str
    precision_evidence: str


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """The rule that made GOOD and BAD, and the thresholds that the user gave."""

    name: str
    thresholds: dict[str, float]


@dataclass(frozen=True, slots=True)
class SearchInfo:
    """What the search cost: rounds of ask and tell, golden passes, tensors probed, node replays."""

    rounds: int = 0
    passes: int = 0
    probes: int = 0
    replays: int = 0
    scan: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The answer of one run. verdict is None where the run did not end (complete is then False)."""

    summary: str
    verdict: Verdict | None
    complete: bool
    culprits: tuple[Culprit, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    suspected_entries: tuple[SuspectedEntry, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    crossings: tuple[CrossingInfo, ...] = ()
    accumulation: Accumulation | None = None
    repeats: Repeats | None = None
    tensors: tuple[TensorRow, ...] = ()
    coverage: Coverage | None = None
    inputs: tuple[InputInfo, ...] = ()
    golden: GoldenInfo | None = None
    target: TargetInfo | None = None
    policy: PolicyInfo | None = None
    search: SearchInfo = field(default_factory=SearchInfo)
    warnings: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    schema: str = SCHEMA
