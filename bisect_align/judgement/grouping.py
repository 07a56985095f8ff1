"""Culprits that are hardly more than one fault: the same operators with the same attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from bisect_align.result.result import Culprit


def kinship(culprit: Culprit) -> tuple[object, ...]:
    """What equal culprits share: kind, operators, attributes. Not what the error looks like most: noise may decide that."""
    operators = tuple((n.domain, n.op, tuple(sorted(n.attributes.items()))) for n in culprit.region.nodes)
    return culprit.kind, operators


def grouped(culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """The same culprits in the same order, `same_as` filled: the first of a group names all others, each other one the first."""
    families: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for one in culprits:
        families[kinship(one)].append(one.region.output)
    found = []
    for one in culprits:
        first, *others = families[kinship(one)]
        found.append(replace(one, same_as=tuple(others) if one.region.output == first else (first,)))
    return tuple(found)
