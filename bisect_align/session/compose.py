"""Findings become the result: every culprit with its certificate, every tensor with its row, and what to do next."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from importlib import metadata
from typing import Any

import numpy as np
import onnx

from bisect_align.golden.protocol import Array
from bisect_align.judgement.conviction import Finding, Ruling
from bisect_align.judgement.hypotheses import hypotheses
from bisect_align.judgement.precision import rms
from bisect_align.judgement.symptoms import symptoms
from bisect_align.judgement.verdict import Facts, verdict
from bisect_align.matching.names import NameTables
from bisect_align.matching.observations import Status
from bisect_align.metrics.measure import measure
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph, Node
from bisect_align.model.region import Region
from bisect_align.result.result import (
    BoundaryTensor,
    Certificate,
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
    State,
    Suspect,
    SuspectedEntry,
    Symptom,
    TargetInfo,
    TensorRow,
    Verdict,
)
from bisect_align.session.hunt import Hunt
from bisect_align.session.phrases import advice, summary

PACKAGES = ("bisect-align", "numpy", "onnx", "onnxruntime", "ml_dtypes")


def compose(hunt: Hunt, seconds: float) -> Result:
    """The result of a run that has ended."""
    facts = facts_of(hunt)
    name = verdict(facts)
    culprits = tuple(culprit(hunt, r) for r in _ordered(hunt, Finding.FAULT)) if name is Verdict.FAULT else ()
    parts = _parts(hunt)
    text = summary(hunt, name, culprits)
    return Result(text, name, True, culprits=culprits, next=advice(hunt, name, culprits), timing={"total": seconds}, **parts)


def partial(hunt: Hunt, why: str, seconds: float) -> Result:
    """What is known where a run was cut short."""
    return Result(f"The run did not end: {why}", None, False, timing={"total": seconds}, **_parts(hunt))


def facts_of(hunt: Hunt) -> Facts:
    """What the verdict table asks."""
    findings = hunt.findings
    if any(check.differs for check in hunt.case.checks):
        return Facts(inputs_differ=True)
    rulings = findings.rulings.values()
    doubtful = any(r.finding in (Finding.FILE, Finding.NAME) for r in rulings)
    matched = hunt.evidence.matched
    whole = hunt.evidence.precision.fitted and hunt.evidence.trusted and matched.tail is None and hunt.ends_compared()
    open_ = any(r.finding is Finding.UNKNOWN or (r.finding is Finding.SUSPECT and r.judged.convicted) for r in rulings)
    judged = findings.full and whole and not open_
    return Facts(
        golden_suspect=bool(findings.golden_suspect),
        convicted=sum(r.finding is Finding.FAULT for r in rulings),
        suspected_entries=sum(r.finding is Finding.FILE for r in rulings),
        beyond=bool(hunt.beyond()),
        all_judged=judged and not (doubtful and hunt.beyond()),
    )


def _ordered(hunt: Hunt, finding: Finding) -> list[Ruling]:
    order = hunt.case.model.graph.order
    return sorted((r for r in hunt.findings.rulings.values() if r.finding is finding), key=lambda r: order[r.tensor])


def culprit(hunt: Hunt, ruling: Ruling) -> Culprit:
    """One convicted region with its certificate."""
    area = ruling.judged.region
    target = hunt.evidence.observations.value(ruling.tensor)
    right = hunt.evidence.court.replayed(ruling.tensor, ruling.replaced)
    golden = hunt.golden.value(ruling.tensor)
    introduced = _measured(right, target)
    looks, guesses = explained(hunt, ruling, target, right)
    certificate = Certificate(tuple(boundary(hunt, b, ruling) for b in area.boundary), introduced, ruling.consumed, ruling.by)
    return Culprit(
        kind=ruling.judged.score.kind or Kind.WRONG_RESULT,
        region=region_info(hunt.case.model.graph, area),
        introduced=introduced,
        noise=noise_of(hunt, ruling),
        certificate=certificate,
        accumulated=_measured(golden, target),
        inherited=_measured(golden, right),
        symptoms=looks,
        hypotheses=guesses,
    )


def explained(hunt: Hunt, ruling: Ruling, target: Array, right: Array | None) -> tuple[tuple[Symptom, ...], tuple[str, ...]]:
    """What the error looks like, and the misreadings of the operator that account for it."""
    if right is None:
        return (), ()
    area, score, fed = ruling.judged.region, ruling.judged.score, hunt.evidence.court.fed(ruling.tensor, ruling.replaced)
    finite = right[np.isfinite(right)] if is_float(right.dtype) else right[:0]
    noise = score.expected * rms(finite)
    op = hunt.case.model.graph.nodes[hunt.case.model.graph.producer[ruling.tensor]].op
    looks = symptoms(target, right, op, boundary=fed, noise_rms=noise)
    precision = hunt.evidence.precision.precision
    return looks, hypotheses(hunt.bench, area, fed, target, right, precision=precision, expected=score.expected)


def _measured(reference: Array | None, values: Array | None) -> Figures:
    """Figures of a pair; without any where one is missing or their shapes differ."""
    if reference is None or values is None or reference.shape != values.shape:
        return Figures()
    return measure(reference, values)


def noise_of(hunt: Hunt, ruling: Ruling) -> Noise:
    score, value = ruling.judged.score, ruling.judged.value
    return Noise(
        expected=score.expected,
        score=value if value is not None else float("nan"),
        precision=hunt.evidence.precision.precision.name,
        hides=ruling.judged.hides,
        statistic=score.statistic + (f": {score.note}" if score.note else ""),
    )


def boundary(hunt: Hunt, name: str, ruling: Ruling) -> BoundaryTensor:
    """Where a value that the region was replayed on came from."""
    if name not in hunt.case.model.graph.order:
        return BoundaryTensor(name, State.GOOD, f"graph input, {hunt.case.inputs.source}")
    hunt.compare([name])
    compared = hunt.findings.compared[name]
    entry = hunt.evidence.matched.placed[name].claim.entry
    source = "replayed: its entry is not believed" if name in ruling.replaced else f"dump: {entry}"
    return BoundaryTensor(name, compared.state, source, compared.figures)


def region_info(graph: Graph, area: Region) -> RegionInfo:
    """The region's operators, computed constants left out."""
    nodes = [graph.nodes[i] for i in area.nodes if not all(graph.is_constant(m) for m in graph.nodes[i].makes)]
    return RegionInfo(area.output, area.boundary, tuple(node_info(n) for n in nodes))


def node_info(node: Node) -> NodeInfo:
    return NodeInfo(node.index, node.name, node.op, node.domain, node.outputs, {a.name: _shown(a) for a in node.proto.attribute})


def _shown(attribute: Any) -> str:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return f"graph {attribute.g.name!r}"
    if attribute.type == onnx.AttributeProto.TENSOR:
        return f"tensor {list(attribute.t.dims)}"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return f"{value:.7g}"
    return str(list(value)) if hasattr(value, "__len__") and not isinstance(value, str) else str(value)


def _parts(hunt: Hunt) -> dict[str, Any]:
    """What every result holds, complete or not."""
    case, findings, evidence = hunt.case, hunt.findings, hunt.findings.evidence
    graph = case.model.graph
    crossings = []
    for found in findings.crossings:
        compared = findings.compared[found.tensor]
        if compared.figures is not None or compared.state is State.BAD:
            sides = tuple(
                BoundaryTensor(b, findings.compared[b].state, "dump", findings.compared[b].figures)
                for b in found.boundary
                if b in findings.compared
            )
            crossings.append(CrossingInfo(found.tensor, sides, compared.figures or Figures()))
    return {
        "suspects": tuple(
            Suspect(
                region_info(graph, r.judged.region),
                Figures(rel_l2=r.judged.score.introduced),
                noise_of(hunt, r),
                r.judged.score.note,
            )
            for r in _ordered(hunt, Finding.SUSPECT)
        ),
        "suspected_entries": _suspected_entries(hunt),
        "not_judged": _not_judged(hunt),
        "crossings": tuple(crossings),
        "tensors": tuple(rows(hunt)),
        "coverage": coverage(hunt),
        "inputs": _inputs(hunt),
        "golden": GoldenInfo(
            str(case.options.golden_dump) if case.options.golden_dump else "onnxruntime CPU, optimisations off, one thread",
            case.model.path.name,
            case.model.sha256,
            len(graph.nodes),
            graph.upcast_from is not None,
        ),
        "target": TargetInfo(
            str(case.options.target_dump),
            len(case.catalogue.entries),
            evidence.precision.precision.name if evidence else case.options.precision,
            evidence.precision.evidence if evidence else "",
        ),
        "policy": PolicyInfo(case.policy.name, dict(case.policy.thresholds)),
        "search": hunt.info(),
        "warnings": tuple(dict.fromkeys(case.warnings)),
        "command": case.options.command,
        "environment": environment(),
    }


def environment() -> dict[str, Any]:
    """Versions and machine: the part of a result that may differ between two equal runs."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "unknown"
    return {"versions": versions, "python": platform.python_version(), "platform": sys.platform, "machine": platform.machine()}


def _suspected_entries(hunt: Hunt) -> tuple[SuspectedEntry, ...]:
    if hunt.findings.evidence is None:
        return ()
    matched = hunt.evidence.matched
    found = []
    for ruling in (*_ordered(hunt, Finding.FILE), *_ordered(hunt, Finding.NAME)):
        entry = matched.placed[ruling.tensor].claim.entry
        if ruling.finding is Finding.FILE and not ruling.holds:
            reason = f"its consumers ({', '.join(ruling.by[:3])}) follow from the replayed value, not from this file"
        else:
            reason = f"holds the value of {ruling.holds!r}"
        found.append(SuspectedEntry(entry, ruling.tensor, reason))
    return tuple(found)


def _not_judged(hunt: Hunt) -> tuple[NotJudged, ...]:
    if hunt.findings.evidence is None:
        return ()
    found = []
    for tensor in hunt.evidence.observed.order:
        ruling = hunt.findings.rulings.get(tensor)
        if ruling is None:
            found.append(NotJudged(tensor, "the search ended before its region was needed"))
        elif ruling.finding is Finding.UNKNOWN:
            found.append(NotJudged(tensor, ruling.judged.score.note))
    return tuple(found)


def rows(hunt: Hunt) -> list[TensorRow]:
    """One row a tensor of the graph."""
    graph, findings = hunt.case.model.graph, hunt.findings
    matched = findings.evidence.matched if findings.evidence else None
    damaged = unreadable(hunt)
    found = []
    for order, name in enumerate(graph.tensors):
        node = graph.nodes[graph.producer[name]]
        seen = matched.placed.get(name) if matched else None
        compared, ruling = findings.compared.get(name), findings.rulings.get(name)
        if compared is not None:
            state, reason = compared.state, compared.reason
        elif seen is not None:
            state, reason = State.UNKNOWN, "not compared: the search did not need it"
        else:
            state, reason = (
                State.UNKNOWN,
                (matched.unknown.get(name) if matched else None) or damaged.get(name, "not in the dump"),
            )
        value = ruling.judged.value if ruling else None
        found.append(
            TensorRow(
                name,
                order,
                node.label,
                node.op,
                state,
                reason,
                entry=seen.claim.entry if seen else None,
                rule=str(seen.claim.rule) if seen else None,
                fix=seen.fix.label if seen and seen.fix else None,
                confidence=seen.confidence if seen else None,
                accumulated=compared.figures if compared else None,
                introduced=ruling.judged.score.introduced if ruling else None,
                score=value,
            )
        )
    return found


def unreadable(hunt: Hunt) -> dict[str, str]:
    """Tensor -> why the file that bears its name cannot be read."""
    graph, problems = hunt.case.model.graph, hunt.case.catalogue.problems
    tables = NameTables(graph.tensors) if problems else None
    found: dict[str, str] = {}
    for problem in problems:
        for name in problem.names:
            _, tensors = (tables.find(name) if tables else None) or (None, ())
            if len(tensors) == 1:
                found.setdefault(tensors[0], f"{problem.source.name} {problem.reason}")
    return found


def coverage(hunt: Hunt) -> Coverage | None:
    """Every tensor and every entry in one class."""
    if hunt.findings.evidence is None:
        return None
    case, matched = hunt.case, hunt.evidence.matched
    graph = case.model.graph
    placed = matched.placed
    rules = Counter(f"{o.claim.rule}" + (f" ({o.status})" if o.status is not Status.NAMED else "") for o in placed.values())
    used = matched.used | {c.entry for c in case.claims.claims if c.tensor in graph.inputs}
    colliding = tuple(sorted(case.claims.ambiguous))
    damaged = tuple(f"{p.names[0] if p.names else p.source.name}: {p.reason}" for p in case.catalogue.problems)
    held = len(placed)
    unknown = sum(1 for t in matched.unknown if t not in placed)
    return Coverage(
        tensors=len(graph.tensors),
        observed=held,
        by_rule=dict(sorted(rules.items())),
        not_dumped=len(graph.tensors) - held - unknown,
        ambiguous=unknown,
        entries=len(case.entries),
        used=len(used),
        unmatched=hunt.unmatched(),
        colliding=colliding,
        unreadable=damaged,
        outputs_missing=tuple(o for o in graph.outputs if o in graph.order and o not in placed),
    )


def _inputs(hunt: Hunt) -> tuple[InputInfo, ...]:
    case = hunt.case
    checks = {c.tensor: c.figures for c in case.checks}
    return tuple(
        InputInfo(name, str(value.dtype), value.shape, case.inputs.source, checks.get(name))
        for name, value in case.inputs.values.items()
    )
