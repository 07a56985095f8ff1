"""Which regions of a result become repros: its culprits, or a tensor of the user's choice."""

from __future__ import annotations

import difflib
import math

from bisect_align.errors import UsageError
from bisect_align.judgement.judge import CONVICT
from bisect_align.model.region import region
from bisect_align.repro.folder import safe
from bisect_align.result.result import Certificate, Consumed, Culprit, Kind, Noise, Result
from bisect_align.session.certify import region_info
from bisect_align.session.reopen import Reopened


def chosen(opened: Reopened, result: Result, tensor: str | None = None) -> list[tuple[str, Culprit]]:
    """(folder name, region to cut out) for each culprit, or for the one tensor. Raises UsageError where there is none."""
    named = [(f"{k}-{safe(_op(c))}", c) for k, c in enumerate(result.culprits, 1)]
    if tensor is None:
        if not named:
            raise UsageError("the result names no culprit", hint="name a tensor that the dump holds with --tensor")
        return named
    for name, culprit in named:
        if culprit.region.output == tensor:
            return [(name, culprit)]
    if tensor not in opened.graph.order:
        near = difflib.get_close_matches(tensor, opened.graph.tensors, 1)
        raise UsageError(
            f"the model computes no tensor {tensor!r}", where="--tensor", hint=f"did you mean {near[0]!r}?" if near else ""
        )
    op = opened.graph.nodes[opened.graph.producer[tensor]].op
    return [(f"tensor-{opened.graph.order[tensor]}-{safe(op)}", as_culprit(opened, tensor))]


def as_culprit(opened: Reopened, tensor: str) -> Culprit:
    """The region of any tensor that the dump holds, in the form of a culprit, with what it introduced; nobody is accused by it.

    Raises DumpError where the dump does not hold it, EngineError where its region cannot be replayed.
    """
    observed = frozenset(name for name, row in opened.rows.items() if row.entry is not None and name != tensor)
    area = region(opened.graph, tensor, observed)
    replay = opened.replay(area, "target")
    expected = replay.score.expected if replay.score else 0.0
    value = replay.score.value if replay.score else None
    noise = Noise(expected, math.nan if value is None else value, opened.precision.name, CONVICT * expected)
    certificate = Certificate((), replay.against, Consumed.UNSEEN)
    kind = (replay.score.kind if replay.score else None) or Kind.WRONG_RESULT
    return Culprit(kind, region_info(opened.graph, area), replay.against, noise, certificate)


def _op(culprit: Culprit) -> str:
    return culprit.region.nodes[-1].op if culprit.region.nodes else "constant"
