"""One row for every tensor of the graph, and the counts over tensors and entries."""

from __future__ import annotations

from collections import Counter

from bisect_align.matching.names import NameTables
from bisect_align.matching.observations import Status
from bisect_align.result.result import Coverage, State, TensorRow
from bisect_align.session.hunt import Hunt


def rows(hunt: Hunt) -> list[TensorRow]:
    """One row a tensor of the graph."""
    graph, findings = hunt.case.model.graph, hunt.findings
    matched = findings.evidence.matched if findings.evidence else None
    damaged, outputs = unreadable(hunt), frozenset(graph.outputs)
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
        judged = ruling.judged if ruling and not ruling.judged.score.unknown else None
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
                introduced=judged.score.introduced if judged else None,
                inherited=findings.inherited.get(name),
                gain=hunt.gain(name) if judged else None,
                hides=judged.hides if judged else None,
                score=judged.value if judged else None,
                output=name in outputs,
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
