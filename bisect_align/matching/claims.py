"""Names to claims: which tensor an entry says it is. A claim is a place to look first, never a proof.

Number endings are never stripped to make a name hit (`relu_1` is not a decorated `relu`), a name inside a longer word is no hit
(`conv1` in `conv10`), and a spelling that two tensors share is ambiguous: neither is picked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from bisect_align.dumps.entry import Entry, Rewrite, Role
from bisect_align.matching.maps import check_map
from bisect_align.matching.names import RANK, WORD, GluedNames, NameTables, Rule, folded, has_letter

__all__ = ["Claim", "Claims", "GraphNames", "NodeNames", "Rule", "claim"]

_DIGITS = re.compile(r"\d+")
# `_1`, `.1`, `_output_0`, `.tmp_0`, also before a decoration: the number tells siblings apart, it decorates nothing.
_NUMBERED = re.compile(r"[\W_]*(?:(?:output|out|tmp|port|dst)[\W_]*)?\d", re.IGNORECASE)
# `conv1_in0`, `conv1.input.0`, `conv1_src_0`: what the node reads, not what it makes.
_READ_BY = re.compile(r"[\W_]*(?:in|input|src)\d*(?:[\W_]+|$)", re.IGNORECASE)


class NodeNames(Protocol):
    """What a claim needs to know of a node."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def outputs(self) -> Sequence[str]: ...


class GraphNames(Protocol):
    """What a claim needs to know of a graph: names only."""

    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def tensors(self) -> Sequence[str]: ...
    @property
    def constants(self) -> Collection[str]: ...
    @property
    def nodes(self) -> Sequence[NodeNames]: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """Entry `entry` (its key) is called like `tensor`, by `rule`. affix: what decorates the name, digits as `#`."""

    entry: str
    tensor: str
    rule: Rule
    affix: str = ""

    @property
    def weak(self) -> bool:
        """A weak claim that no value supports is dropped, not taken for a fault."""
        return RANK[self.rule] >= RANK[Rule.NODE]

    @property
    def kind(self) -> tuple[str, str]:
        """The class over which a dump's habits are learnt."""
        return (self.rule, self.affix)


@dataclass(frozen=True, slots=True)
class Claims:
    """At most one claim an entry; several entries may claim one tensor (twins before and after dequantisation).

    claims: on graph inputs and node outputs, strongest rule first, then in the order of entries; weights: the same on constants.
    ambiguous: entry key -> the tensors that share its spelling. unclaimed: keys of entries without a claim (reference entries,
    which never claim, left out). ignored: keys that the map leaves out.
    """

    claims: tuple[Claim, ...]
    weights: tuple[Claim, ...]
    ambiguous: Mapping[str, tuple[str, ...]]
    unclaimed: tuple[str, ...]
    ignored: tuple[str, ...]

    def beside(self, compared: Container[str]) -> set[str]:
        """Keys of entries that claim something else than these: a graph input, a constant, what steers shapes."""
        return {one.entry for one in (*self.claims, *self.weights) if one.tensor not in compared}


@dataclass(frozen=True, slots=True)
class _Hit:
    """What one name of an entry leads to. tensors: several = ambiguous; part: what of the name was recognised."""

    rule: Rule
    tensors: tuple[str, ...]
    part: str
    affix: str = ""


def claim(
    entries: Sequence[Entry], graph: GraphNames, map: Mapping[str, str] | None = None, rewrites: Sequence[Rewrite] = ()
) -> Claims:
    """What each entry's names say. O(names), by hash tables.

    rewrites: what the dump's toolchain does to a name of the model, step by step, beside the spellings that are tried anyway.
    map: entry key (or one of the entry's names) -> tensor, "" = leave the entry out; it goes before every rule.
    Entries with role input claim graph inputs only, with role weight constants only; role reference claims nothing.
    Raises MatchError if the map names an entry or a tensor that does not exist.
    """
    operators = frozenset(node.op for node in graph.nodes)
    named = [(node.name, node.outputs) for node in graph.nodes]
    spell = _speller(rewrites) if rewrites else None
    everything = NameTables([*graph.inputs, *graph.tensors, *graph.constants], named, spell)
    tables = {
        Role.TARGET: everything,
        Role.INPUT: NameTables(graph.inputs, spell=spell),
        Role.WEIGHT: NameTables(graph.constants, spell=spell),
    }
    glued = GluedNames(everything.spellings(), operators)
    constants = frozenset(graph.constants).difference(graph.inputs)
    if map:
        check_map(map, entries, [*graph.inputs, *graph.tensors, *graph.constants])
    spoken = frozenset(name for entry in entries if entry.role is not Role.REFERENCE for name in entry.names)

    hits: dict[str, _Hit | None] = {}
    ignored: list[str] = []
    for entry in entries:
        mapped = _mapped(entry, map) if map else None
        if mapped == "":
            ignored.append(entry.key)
        elif mapped:
            hits[entry.key] = _Hit(Rule.MAP, (mapped,), mapped)
        elif entry.role is not Role.REFERENCE:
            hits[entry.key] = _best(entry, tables[entry.role], glued, spoken)
    prefixes = Counter(_bare(hit.affix) for hit in hits.values() if hit and hit.rule is Rule.PREFIX)

    claims: list[Claim] = []
    ambiguous: dict[str, tuple[str, ...]] = {}
    unclaimed: list[str] = []
    for key, hit in hits.items():
        if hit and not _chance(hit, prefixes, operators):
            if len(hit.tensors) == 1:
                claims.append(Claim(key, hit.tensors[0], hit.rule, hit.affix))
                continue
            ambiguous[key] = hit.tensors
        unclaimed.append(key)
    claims.sort(key=lambda one: RANK[one.rule])
    return Claims(
        claims=tuple(one for one in claims if one.tensor not in constants),
        weights=tuple(one for one in claims if one.tensor in constants),
        ambiguous=ambiguous,
        unclaimed=tuple(unclaimed),
        ignored=tuple(ignored),
    )


def _speller(rewrites: Sequence[Rewrite]) -> Callable[[str], str]:
    def spell(name: str) -> str:
        for step in rewrites:
            name = step.apply(name)
        return name

    return spell


def _chance(hit: _Hit, prefixes: Mapping[str, int], operators: Collection[str]) -> bool:
    """One word behind a prefix that no other entry has, and no operator: `002_fused_conv2d1_relu1` is no decorated `relu1`."""
    bare = _bare(hit.affix)
    return hit.rule is Rule.PREFIX and WORD.fullmatch(hit.part) is not None and prefixes[bare] == 1 and bare not in operators


def _bare(affix: str) -> str:
    return affix.strip("_/.:- ")


def _mapped(entry: Entry, map: Mapping[str, str]) -> str | None:
    return next((map[name] for name in (entry.key, *entry.names) if name in map), None)


def _best(entry: Entry, tables: NameTables, glued: GluedNames, spoken: frozenset[str]) -> _Hit | None:
    """The strongest hit over all names of an entry; its first ambiguous one where no name hits a single tensor."""
    names = tuple(dict.fromkeys(name for name in entry.names if name))
    whole = [hit for name in names if (hit := _whole(name, tables, spoken))]
    if entry.decoration and (hit := _whole(names[0], tables, spoken)):
        rule = hit.rule if RANK[hit.rule] >= RANK[Rule.NODE] else Rule.SUFFIX
        whole[0] = replace(hit, rule=rule, affix=_DIGITS.sub("#", entry.decoration))
    if whole:
        return min(whole, key=lambda hit: (len(hit.tensors) > 1, RANK[hit.rule] >= RANK[Rule.NODE]))
    if entry.whole:
        return None
    reads = entry.role is Role.INPUT
    for decorated in (_suffixed, _prefixed):
        parts = [hit for name in names if (hit := decorated(name, tables, glued, reads))]
        if parts:
            return max(parts, key=lambda hit: (len(hit.tensors) == 1, len(hit.part)))
    return None


def _whole(name: str, tables: NameTables, spoken: frozenset[str]) -> _Hit | None:
    found = tables.find(name)
    if found is None:
        return None
    rule, tensors = found
    # A file `a_b` may be `a_b` or `a/b`, unless the dump has `a/b` under its own name too.
    if rule is Rule.EXACT and (rivals := [rival for rival in tables.rivals(name) if rival not in spoken]):
        tensors = (name, *rivals)
    return _Hit(rule, tensors, name)


def _suffixed(name: str, tables: NameTables, glued: GluedNames, reads: bool) -> _Hit | None:
    """The longest known name that the entry's name begins with, up to a separator. A refused longest one ends the search."""
    words = list(WORD.finditer(name))
    fold = folded(name)
    length = len(fold)
    for after, word in pairwise(reversed(words)):
        length -= len(after.group().lower()) + 1
        if not tables.knows(fold[:length]):
            continue
        tensors = tables.find_part([name[:end] for end in range(word.end(), after.start())], fold[:length])
        if not tensors:
            continue
        suffix = name[word.end() :]
        if not has_letter(suffix) or _NUMBERED.match(suffix) or (_READ_BY.match(suffix) and not reads) or glued.within(suffix):
            return None
        return _Hit(Rule.SUFFIX, tensors, name[: word.end()], _DIGITS.sub("#", suffix))
    return None


def _prefixed(name: str, tables: NameTables, glued: GluedNames, reads: bool) -> _Hit | None:
    """The longest known name that the entry's name ends with, from a separator on."""
    words = list(WORD.finditer(name))
    fold = folded(name)
    start = 0
    for before, word in pairwise(words):
        start += len(before.group().lower()) + 1
        if not tables.knows(fold[start:]):
            continue
        tensors = tables.find_part([name[begin:] for begin in range(before.end(), word.start() + 1)], fold[start:])
        if not tensors:
            continue
        prefix, part = name[: word.start()], name[word.start() :]
        if not has_letter(part) or _NUMBERED.match(part) or (_READ_BY.fullmatch(prefix) and not reads) or glued.within(prefix):
            return None
        return _Hit(Rule.PREFIX, tensors, part, _DIGITS.sub("#", prefix))
    return None
