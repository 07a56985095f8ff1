"""Findings become the result: every culprit with its certificate, every tensor with its row, and what to do next."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

from bisect_align.judgement.conviction import Finding, Ruling
from bisect_align.judgement.grouping import grouped
from bisect_align.judgement.verdict import Facts, verdict
from bisect_align.result.result import (
    BoundaryTensor,
    CrossingInfo,
    Figures,
    GoldenInfo,
    InputInfo,
    NotJudged,
    PolicyInfo,
    Result,
    State,
    Suspect,
    SuspectedEntry,
    TargetInfo,
    Verdict,
)
from bisect_align.session.advice import advice
from bisect_align.session.budget import accumulation
from bisect_align.session.certify import culprit, noise_of, region_info
from bisect_align.session.hunt import Hunt
from bisect_align.session.phrases import summary
from bisect_align.session.tabulate import coverage, rows

PACKAGES = ("bisect-align", "numpy", "onnx", "onnxruntime", "ml_dtypes")


def compose(hunt: Hunt, seconds: float) -> Result:
    """The result of a run that has ended."""
    facts = facts_of(hunt)
    name = verdict(facts)
    culprits = grouped([culprit(hunt, r) for r in _ordered(hunt, Finding.FAULT)]) if name is Verdict.FAULT else ()
    sums = accumulation(hunt) if name is Verdict.ACCUMULATION else None
    return Result(
        summary(hunt, name, culprits),
        name,
        True,
        culprits=culprits,
        accumulation=sums,
        next=advice(hunt, name, culprits, sums),
        timing={"total": seconds},
        **_parts(hunt),
    )


def partial(hunt: Hunt, why: str, seconds: float) -> Result:
    """What is known where a run was cut short."""
    return Result(f"The run did not end: {why}", None, False, timing={"total": seconds}, **_parts(hunt))


def facts_of(hunt: Hunt) -> Facts:
    """What the verdict table asks."""
    findings = hunt.findings
    if any(check.differs for check in hunt.case.checks) or findings.wrong_input is not None:
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
        "repeats": findings.repeats,
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


def _inputs(hunt: Hunt) -> tuple[InputInfo, ...]:
    case = hunt.case
    checks = {c.tensor: c.figures for c in case.checks}
    return tuple(
        InputInfo(name, str(value.dtype), value.shape, case.inputs.source, checks.get(name))
        for name, value in case.inputs.values.items()
    )
