"""What the dump says: every entry matched with evidence, or, for a first search, names taken at their word after a sample of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bisect_align.dumps.entry import Role
from bisect_align.golden.protocol import Unavailable
from bisect_align.judgement.bench import Bench
from bisect_align.judgement.conviction import Court
from bisect_align.judgement.inference import Inferred, infer
from bisect_align.judgement.judge import Judge, sample
from bisect_align.judgement.precision import FP16, FP32, LADDER, Precision, given
from bisect_align.judgement.shadow import NoiseLevel
from bisect_align.judgement.steps import fitted
from bisect_align.matching.claims import Claim, Rule
from bisect_align.matching.fit import carries_evidence, learn, residual
from bisect_align.matching.layout import fixes
from bisect_align.matching.lookaround import Around
from bisect_align.matching.match import Matched, match
from bisect_align.matching.matcher import Matcher
from bisect_align.matching.observations import Observation, Observations, Status
from bisect_align.model.graph import Graph
from bisect_align.model.observed import ObservedGraph, observe
from bisect_align.model.operators import MOVES, QUANTISING
from bisect_align.model.parameters import never_fed
from bisect_align.session.case import CACHE_SHARE, Case, nothing_matched
from bisect_align.session.golden import GoldenValues, noise_levels
from bisect_align.session.mapfile import disobeyed
from bisect_align.session.progress import Progress

# Entries that fitted no prediction, or that of another tensor than they are named after.
UNCERTAIN = (Status.UNSUPPORTED, Status.ALIAS, Status.NAME_ONLY)
# Names are taken at their word where nearly all claims of a sample fit their predictions. Fewer tensors are read whole.
SAMPLE, SAMPLE_FITS, WORTH_IT = 32, 0.9, 64


@dataclass(frozen=True, slots=True)
class Evidence:
    """Values of the dump by tensor, the observed graph, the precision, the noise that it explains, and the court to rule by."""

    matched: Matched
    observations: Observations
    observed: ObservedGraph
    precision: Inferred
    noise: dict[str, NoiseLevel]
    court: Court

    @property
    def trusted(self) -> bool:
        """False where so much contradicts the model that it is hardly the operators."""
        return self.matched.trusted and self.precision.explains


def gather(case: Case, bench: Bench, golden: GoldenValues, progress: Progress) -> Evidence:
    """Match the whole dump. Raises MatchError where no entry is a tensor of the model."""
    progress.stage("matching")
    matched, observations = match_whole(case)
    case.warnings += [
        f"the map says that {o.claim.entry!r} is {o.claim.tensor!r}, its values are those of {t!r}"
        for t, o in matched.placed.items()
        if o.claim.rule is Rule.MAP and o.status is Status.ALIAS
    ]
    evidence = _weigh(case, bench, golden, matched, observations, progress)
    if not evidence.precision.fitted:
        case.warnings.append(f"the precision is not certain, judged as {evidence.precision.precision.name}")
    elif not evidence.precision.shown:
        case.warnings.append(
            f"judged as {evidence.precision.precision.name} by the size of the errors alone: the dump's numbers are not of that format; "
            "if the target computes finer, give --precision"
        )
    return evidence


def match_whole(case: Case) -> tuple[Matched, Observations]:
    """Place every entry that can be placed. Raises MatchError where none can."""
    matcher = Matcher(
        case.model.graph, case.engine, case.inputs.values, case.catalogue.entries, case.claims, case.memory // CACHE_SHARE
    )
    matched = match(matcher)
    if not matched.placed:
        raise nothing_matched(case, dict(matched.dropped))
    if matched.trouble:
        case.warnings.append(matched.trouble)
    case.warnings += disobeyed(case.claims, matched, case.entries, case.model.graph)
    return matched, matcher.observations


def by_name(case: Case, bench: Bench, golden: GoldenValues, progress: Progress) -> Evidence | None:
    """Evidence that rests on names, checked on a sample only; None where names are missing, weak, shared, or do not hold.

    Reads the sample, and later what the search asks for; the rest of the dump stays unread.
    """
    claims = _plain_claims(case)
    if len(claims) < WORTH_IT:
        return None
    progress.stage("sampling")
    placed = _assumed(case, golden, claims)
    if placed is None:
        return None
    observations = Observations(case.entries, case.inputs.values, placed, case.memory // CACHE_SHARE)
    graph = case.model.graph
    around = Around(graph, case.engine, observations)
    order = [t for t in graph.tensors if t in placed]
    computed: list[float] = []
    residuals: list[float] = []
    for tensor in sample(order, SAMPLE):
        values = observations.value(tensor)
        predicted = around.predict(tensor, {})
        if predicted is None or predicted.shape != values.shape or not carries_evidence(values):
            continue
        residuals.append(residual(values, predicted))
        if graph.nodes[graph.producer[tensor]].op not in MOVES:
            computed.append(residuals[-1])
    tolerance = learn(computed)
    fits = sum(r <= tolerance.fits / 2 for r in residuals)
    if len(residuals) < SAMPLE / 2 or fits < SAMPLE_FITS * len(residuals):
        return None
    matched = Matched(placed, {}, {}, {}, tolerance)
    evidence = _weigh(case, bench, golden, matched, observations, progress)
    return evidence if evidence.precision.fitted else None


def _plain_claims(case: Case) -> dict[str, Claim]:
    """Strong claims on node outputs; none where any entry of the target is claimed weakly, doubly, or not at all."""
    order, steering = case.model.graph.order, never_fed(case.model.graph)
    found: dict[str, Claim] = {}
    spoken = {c.entry for c in (*case.claims.claims, *case.claims.weights)} | set(case.claims.ignored)
    if any(e.role is Role.TARGET and e.key not in spoken for e in case.catalogue.entries):
        return {}
    for claim in case.claims.claims:
        if claim.tensor not in order or claim.tensor in steering:
            continue
        if claim.weak or claim.tensor in found:
            return {}
        found[claim.tensor] = claim
    return found


def _assumed(case: Case, golden: GoldenValues, claims: dict[str, Claim]) -> dict[str, Observation] | None:
    """Observations by name, in the tensor's own order of axes; None where an entry's header says another shape."""
    found: dict[str, Observation] = {}
    for tensor, value in golden.own(list(claims)):
        if isinstance(value, Unavailable):
            continue
        entry = case.entries[claims[tensor].entry]
        shape = entry.shape if entry.shape is not None else value.shape
        plain = next((f for f in fixes(shape, value.shape) if f.label == "id"), None)
        if plain is None or (entry.dtype is not None and entry.dtype.kind != value.dtype.kind):
            return None
        found[tensor] = Observation(tensor, claims[tensor], Status.ASSUMED, np.nan, plain, value.dtype, value.shape)
    return {t: found[t] for t in case.model.graph.tensors if t in found}


def _weigh(
    case: Case, bench: Bench, golden: GoldenValues, matched: Matched, observations: Observations, progress: Progress
) -> Evidence:
    """Infer the precision, measure what it explains, and seat the court."""
    graph = case.model.graph
    observed = observe(graph, matched.placed)
    progress.stage("precision")
    judges: dict[str, Judge] = {}

    def judge_at(precision: Precision) -> Judge:
        if precision.name not in judges:
            at = fitted(bench, observations, observed.order, precision)
            judges[precision.name] = Judge(at, observations, observed.order, precision)
        return judges[precision.name]

    if (asked := given(case.options.precision)) is not None:
        precision = Inferred(asked, "given by the user", True)
    else:
        precision = infer(judge_at, observed.order, candidates(graph))
    placed = matched.placed.items()
    court = Court(
        judge_at(precision.precision),
        observed,
        trusted=matched.trusted and precision.explains,
        uncertain=frozenset(t for t, o in placed if o.status in UNCERTAIN),
        needs_consumer=frozenset(
            t
            for t, o in placed
            # a decorated name that the dump has proven will do for an end of the graph, which nobody reads
            if o.claim.rule is Rule.VALUE or (o.claim.weak and not o.supported and observed.children[t])
        ),
        turned=_turned(matched.placed),
    )
    progress.stage("noise")
    noise = noise_levels(golden, court.judge.bench, observed.order, precision.precision)
    return Evidence(matched, observations, observed, precision, noise, court)


def _turned(placed: Mapping[str, Observation]) -> frozenset[str]:
    """Tensors that fit in another order of axes alone, and those that fit in none while their shape would hide the same order."""
    orders = {(len(o.shape), o.otherwise) for o in placed.values() if o.otherwise}

    def hides_one(o: Observation) -> bool:
        labels = {fix.label for fix in fixes(o.shape, o.shape)}
        return any(rank == len(o.shape) and label in labels for rank, label in orders)

    return frozenset(t for t, o in placed.items() if o.otherwise or (orders and not o.supported and hides_one(o)))


def candidates(graph: Graph) -> tuple[Precision, ...]:
    """A QDQ graph holds its quantisation: its floats are judged at a float precision. A half model ran at half or coarser."""
    ladder: tuple[Precision, ...] = LADDER
    if any(n.op in QUANTISING for n in graph.nodes):
        ladder = tuple(p for p in ladder if not p.stepped)
    if graph.upcast_from is not None:
        finer = (FP32,) if graph.upcast_from == np.float16 else (FP32, FP16)
        ladder = tuple(p for p in ladder if p not in finer)
    return ladder
