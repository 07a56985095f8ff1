"""What names could not place: matched by value, and through the holes that a fault leaves in a dump without names."""

from __future__ import annotations

import numpy as np

from bisect_align.dumps.entry import Role
from bisect_align.errors import DumpError
from bisect_align.matching.byvalue import ByValue, Pool, pool_of, values_of
from bisect_align.matching.claims import Rule
from bisect_align.matching.fit import LOOSEST, carries_evidence, fit
from bisect_align.matching.holes import Holes
from bisect_align.matching.matcher import Matcher
from bisect_align.model.dtypes import is_float
from bisect_align.model.region import region

ROUNDS = 12  # of matching by value; each hole that is bridged opens another
TAIL_SIZE = 16  # elements below which a tensor is too small to be missed
GAP = 24  # nodes of a region that ought to have been split by the entries that are left


def unexplained_tail(matcher: Matcher) -> tuple[str, tuple[str, ...]] | None:
    """Whether the dump goes on below the last matched tensors, or between two that are far apart, with values that fit nothing
    there: (deepest matched tensor, entries). What these entries say has not been heard; nothing may be said of that part.
    """
    graph, placed = matcher.graph, matcher.placed
    above: set[str] = set()
    for name in reversed(graph.tensors):
        if name in placed or name in above:
            above.update(graph.nodes[graph.producer[name]].reads)
    free = [t for t in graph.tensors if t not in placed and t not in matcher.steering and not graph.is_constant(t)]
    wide = {t for p in placed if len((area := region(graph, p, matcher.observations)).nodes) > GAP for t in area.hidden}
    sizes = {size for t in free if (t not in above or t in wide) and (size := matcher.sizes.get(t, 0)) >= TAIL_SIZE}
    sizes |= {matcher.sizes.get(t, 0) for t in free if t in graph.outputs} - {0, 1}  # a small output is still the answer
    finite = {matcher.sizes.get(t, 0) for t in free if t not in matcher.odd} - {matcher.sizes.get(t, 0) for t in matcher.odd}
    used = matcher.accounted_for
    left: list[str] = []
    for entry in matcher.entries.values():
        if entry.role is not Role.TARGET or entry.key in used:
            continue
        try:
            values = values_of(entry)
        except DumpError:
            continue
        if values is None or (values.size < TAIL_SIZE and values.size not in sizes):
            continue
        # NaN and Inf that no prediction of that size has are values gone wrong, wherever they belong
        gone_wrong = not np.isfinite(values).all() and values.size in finite
        if gone_wrong or (entry.key not in matcher.named and values.size in sizes and carries_evidence(values)):
            left.append(entry.key)
    if not left or not placed:
        return None
    return max(placed, key=graph.order.__getitem__), tuple(left)


def _set_copies_aside(matcher: Matcher, pool: Pool) -> None:
    """Entries that repeat a graph input are no tensor's value; such copies are common in front of the first operator."""
    for entry in list(pool.entries):
        values = values_of(matcher.entries[entry])
        for name, given in matcher.inputs.items():
            if values is None or not is_float(given.dtype) or not carries_evidence(given):
                continue
            got = fit(values, given, matcher.known.votes, LOOSEST)
            if got is not None and got.residual <= matcher.known.tolerance.tie:
                matcher.repeats[entry] = name
                pool.entries.pop(entry)
                break


def _named(matcher: Matcher) -> bool:
    """True where names have placed most of what is placed: a faulty entry of such a dump has a name, and is no hole."""
    by_name = sum(o.claim.rule is not Rule.VALUE for o in matcher.placed.values())
    return 2 * by_name > len(matcher.placed)


def match_by_value(matcher: Matcher) -> str:
    """Place free entries by value until nothing new is found; "" or why the search for holes gave up."""
    used = matcher.accounted_for | matcher.refused
    free = [e for e in matcher.entries.values() if e.role is Role.TARGET and e.key not in used]
    pool = pool_of(free)
    _set_copies_aside(matcher, pool)
    if not pool.entries:
        return ""
    matcher.repeats.update(pool.twins)
    if not matcher.claims:
        matcher.settle()
    by_value = ByValue(matcher.graph, matcher.engine, matcher.inputs, pool, matcher.known.votes)
    holes: Holes | None = None
    learnt = matcher.known.tolerance if any(o.supported for o in matcher.placed.values()) else None
    for _ in range(ROUNDS):
        believed = matcher.known.votes.all_believed()
        found, learnt = by_value.round(matcher.observations, matcher.prints, learnt)
        matcher.known.tolerance = learnt
        if found:
            for entry, (tensor, _) in found.items():
                matcher.adopt(entry, tensor)
        elif matcher.known.votes.all_believed() != believed:
            continue  # the round has taught a layout: look again with it
        elif _named(matcher):
            return ""
        else:
            spent = holes.spent if holes else 0
            holes = Holes(matcher.graph, matcher.engine, matcher.observations, matcher.steering, matcher.sizes)
            holes.spent = spent
            hole = holes.find(pool, by_value, learnt or LOOSEST)
            if holes.gave_up:
                return f"the search for the place of {len(pool.entries)} unmatched entries gave up after {holes.spent} replays"
            if hole is None:
                return ""
            matcher.adopt(hole.entry, hole.tensor, consumed=True)
        matcher.settle()
        for entry in [o.claim.entry for o in matcher.placed.values()]:
            pool.entries.pop(entry, None)
        if not pool.entries:
            return ""
    return ""
