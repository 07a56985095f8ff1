"""What a toolchain may have made of a tensor's name: forward tables from every known spelling back to its owners.

A sanitiser is never inverted: each rule is applied to every name of the model, and a file's name is looked up in the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, TypeVar

_Owner = TypeVar("_Owner", bound=Hashable)
_Spelling: TypeAlias = Callable[[str], str]

WORD = re.compile(r"[^\W_]+")
_LETTER = re.compile(r"[^\W\d_]")
_ADJACENT = re.compile(r"[^A-Za-z0-9_]{2}")
_NON_ASCII = re.compile(r"[^\x00-\x7f]")
_NODE_OUTPUT = re.compile(r"(?P<node>.+?)[.:](?P<index>\d{1,3})(?:\.\d{10,})?")
_ASCII = [chr(code) for code in range(128)]


def _all_but(kept: str) -> dict[int, str]:
    return {ord(char): "_" for char in _ASCII if not (char.isalnum() or char in kept)}


# One character for one, beside `/` alone and `/` with `.`, to which all of these come down in most names.
_PER_CHARACTER = (
    {ord("/"): "_", ord("."): "_", ord("\\"): "_", ord(" "): "_"},
    {ord("/"): "_", ord("\\"): "_", ord(" "): "_", ord(":"): "-"},
    _all_but("_.-"),
    _all_but("_-"),
    _all_but(""),
)
# A run of characters for one underscore.
_PER_RUN = tuple(re.compile(pattern) for pattern in (r"[^A-Za-z0-9_.-]+", r"[^A-Za-z0-9_]+", r"[^A-Za-z0-9]+"))

# Words that are part of a decoration (`_DequantizeLinear_Output`) even where a tensor is called so.
_COMMON_WORDS = frozenset({"input", "Input", "output", "Output", "in", "out", "actual", "float", "quantized"})


class Rule(StrEnum):
    """How a name led to a tensor, strongest first."""

    MAP = "map"
    EXACT = "exact"
    SANITISED = "sanitised"
    FOLDED = "folded"
    NODE = "node"
    SUFFIX = "suffix"
    PREFIX = "prefix"
    VALUE = "value"


RANK: Mapping[Rule, int] = {rule: rank for rank, rule in enumerate(Rule)}


def sanitised(name: str) -> set[str]:
    """Every spelling that the known sanitisers give to a name, but the name itself."""
    slashless = name.replace("/", "_")
    dotless = slashless.replace(".", "_")
    forms = {slashless, dotless}
    if not (dotless.isascii() and dotless.replace("_", "").isalnum()):
        spellings = {name} if name.isascii() else {name, _NON_ASCII.sub("_", name)}
        forms |= {spelling.translate(table) for spelling in spellings for table in _PER_CHARACTER}
    if _ADJACENT.search(name):
        forms |= {pattern.sub("_", name) for pattern in _PER_RUN}
    forms |= {f"_{form}" for form in forms if form[:1].isdigit()}  # C identifiers do not start with a digit
    return forms - {name}


def folded(name: str) -> str:
    """Letters and digits in lower case, all else one underscore, none at the ends: `/a.0/Conv` becomes `a_0_conv`."""
    return "_".join(WORD.findall(name)).lower()


def _add(table: dict[str, list[_Owner]], form: str, owner: _Owner) -> None:
    """Nothing is looked up by an empty form; an owner, whose forms come one after another, stands once."""
    if form:
        owners = table.setdefault(form, [])
        if not owners or owners[-1] != owner:
            owners.append(owner)


def has_letter(text: str) -> bool:
    return _LETTER.search(text) is not None


class NameTables:
    """Names of tensors and of nodes, by every spelling. Built in O(names); a look-up is a few hash probes.

    nodes: (name, outputs) pairs; nodes without a name are left out. Several tensors in an answer share the spelling.
    spell: one more sanitiser, that of the dump's own toolchain.
    """

    def __init__(
        self, tensors: Iterable[str], nodes: Iterable[tuple[str, Sequence[str]]] = (), spell: _Spelling | None = None
    ) -> None:
        self._exact = frozenset(tensors)
        self._sanitised: dict[str, list[str]] = {}
        self._stripped: dict[str, list[str]] = {}
        self._folded: dict[str, list[str]] = {}
        self._folds: set[str] = set()
        for name in sorted(self._exact):
            forms = self._spelt(name, spell)
            for form in forms:
                _add(self._sanitised, form, name)
            for form in {form.lstrip("_") for form in forms if form.startswith("_")}:
                _add(self._stripped, form, name)
            _add(self._folded, folded(name), name)
        self._outputs: list[tuple[str, ...]] = []
        self._nodes: dict[str, list[int]] = {}
        self._nodes_folded: dict[str, list[int]] = {}
        exact_nodes: dict[str, list[int]] = {}
        for name, outputs in nodes:
            if not name:
                continue
            place = len(self._outputs)
            self._outputs.append(tuple(outputs))
            _add(exact_nodes, name, place)
            for form in self._spelt(name, spell):
                _add(self._nodes, form, place)
            _add(self._nodes_folded, folded(name), place)
        self._nodes |= exact_nodes  # a node's own name goes before what sanitisers make of another's
        self._folds |= self._folded.keys() | self._nodes_folded.keys()

    def _spelt(self, name: str, spell: _Spelling | None) -> set[str]:
        """What sanitisers make of a name; noted where folding the name itself would not give the same."""
        forms = sanitised(name) if spell is None else (sanitised(name) | {spell(name)}) - {name}
        if not name.isascii() or spell is not None:
            self._folds.update(map(folded, forms))
        return forms

    def spellings(self) -> Iterable[str]:
        """All names and their sanitised forms, with those of nodes."""
        yield from self._exact
        yield from self._sanitised
        yield from self._nodes

    def rivals(self, name: str) -> tuple[str, ...]:
        """Other tensors whose sanitised form is this tensor's own name: one file may stand for either."""
        return tuple(other for other in self._sanitised.get(name, ()) if other != name)

    def find(self, name: str) -> tuple[Rule, tuple[str, ...]] | None:
        """The first rule that knows the whole name, and the tensors that it leads to."""
        if name in self._exact:
            return Rule.EXACT, (name,)
        if tensors := self._sanitised.get(name) or self._stripped.get(name):
            return Rule.SANITISED, tuple(tensors)
        # `N.1` is the second output of node N, rather than a tensor `N_1`: no sanitiser makes a dot.
        if made := self._indexed(name, self._nodes, str):
            return Rule.NODE, made
        fold = folded(name)
        if tensors := self._folded.get(fold):
            return Rule.FOLDED, tuple(tensors)
        if made := self._made(self._nodes.get(name) or self._nodes_folded.get(fold) or (), 0):
            return Rule.NODE, made
        if made := self._indexed(name, self._nodes_folded, folded):
            return Rule.NODE, made
        return None

    def knows(self, fold: str) -> bool:
        """False if no spelling of any name has this folded form: the one probe that rules nearly everything out."""
        return fold in self._folds

    def find_part(self, parts: Sequence[str], fold: str) -> tuple[str, ...]:
        """The tensors that a part of a name leads to; () if none.

        parts: the part with and without the separators at its ends; fold: the folded form of them all.
        A node of several outputs leads to all of them: a decorated `Split` does not say which one it is.
        """
        for table in (self._sanitised, self._stripped):
            for part in parts:
                if part in self._exact:
                    return (part,)
                if part in table:
                    return tuple(table[part])
        if fold in self._folded:
            return tuple(self._folded[fold])
        places = next((self._nodes[part] for part in parts if part in self._nodes), self._nodes_folded.get(fold, []))
        return self._present(tensor for place in places for tensor in self._outputs[place])

    def _made(self, places: Sequence[int], index: int) -> tuple[str, ...]:
        return self._present(self._outputs[place][index] for place in places if index < len(self._outputs[place]))

    def _present(self, tensors: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tensor for tensor in tensors if tensor in self._exact))

    def _indexed(self, name: str, table: Mapping[str, list[int]], spell: _Spelling) -> tuple[str, ...]:
        if match := _NODE_OUTPUT.fullmatch(name):
            return self._made(table.get(spell(match["node"]), ()), int(match["index"]))
        return ()


class GluedNames:
    """Tells whether a decoration holds a further name of the model: then the key speaks of two tensors."""

    def __init__(self, spellings: Iterable[str], operators: Iterable[str]) -> None:
        words = _COMMON_WORDS | frozenset(operators)
        self._names: set[str] = set()
        self._heads: set[str] = set()
        for spelling in spellings:
            tokens = WORD.search(spelling)
            if tokens is None or not has_letter(spelling):
                continue
            name = spelling[tokens.start() :].rstrip("_/.:;@-")
            if name not in words:
                self._names.add(name)
                self._heads.add(tokens.group())

    def within(self, text: str) -> bool:
        """True if a whole name stands in the text, from anywhere to the end of a word (`HardSigmoidtmp_6` holds `tmp_6`)."""
        words = list(WORD.finditer(text))
        for number, word in enumerate(words):
            token = word.group()
            for offset in range(len(token)):
                if token[offset:] not in self._heads:
                    continue
                start = word.start() + offset
                for last in words[number:]:
                    name = text[start : last.end()]
                    # Inside a word, three letters may be chance: `_Max` does not name a tensor `x`.
                    if name in self._names and (offset == 0 or len(name) > 3):
                        return True
        return False
