"""How an operator may be misread: the ways to make another node of a node, which the table of hypotheses names."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

Array: TypeAlias = NDArray[Any]

NEW = "!rival"  # names that a rival brings begin like this


@dataclass(frozen=True, slots=True)
class Site:
    """The node that is doubted. value: what it was fed, or a constant, by name (None: not known); opset: of the standard operators;
    fixed: names of constants."""

    proto: onnx.NodeProto
    opset: int
    value: Callable[[str], Array | None]
    fixed: Container[str] = ()

    def given(self, place: int) -> Array | None:
        """The value of an input by position; None where it is absent."""
        name = self.proto.input[place] if place < len(self.proto.input) else ""
        return self.value(name) if name else None

    def attribute(self, name: str) -> Any:
        """What the node says, else the operator's default, else None."""
        for found in self.proto.attribute:
            if found.name == name:
                value = helper.get_attribute_value(found)
                return value.decode() if isinstance(value, bytes) else value
        known = self.attributes.get(name)
        if known is None or not known.default_value.name:
            return None
        value = helper.get_attribute_value(known.default_value)
        return value.decode() if isinstance(value, bytes) else value

    @property
    def attributes(self) -> Mapping[str, onnx.defs.OpSchema.Attribute]:
        """What the operator takes in this opset."""
        try:
            return dict(onnx.defs.get_schema(self.proto.op_type, self.opset).attributes)
        except onnx.defs.SchemaError:
            return {}

    @property
    def rank(self) -> int:
        first = self.given(0)
        return 0 if first is None else first.ndim


@dataclass(frozen=True, slots=True)
class Rival:
    """What the target may have run in place of the node. The nodes make the node's own outputs; feeds: what else they read."""

    text: str
    nodes: tuple[onnx.NodeProto, ...]
    feeds: Mapping[str, Array] = field(default_factory=dict)
    opset: int | None = None


Change: TypeAlias = Callable[[Site], Iterator[Rival]]
Rewrite: TypeAlias = Callable[[Site], "Mapping[int, Array | None] | None"]


def altered(site: Site, attributes: Mapping[str, Any], inputs: Mapping[int, str] = {}) -> onnx.NodeProto:
    """The node with other attributes (None: left out) and inputs."""
    node = onnx.NodeProto()
    node.CopyFrom(site.proto)
    kept = [a for a in node.attribute if a.name not in attributes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if v is not None)
    for place, name in inputs.items():
        node.input.extend([""] * (place + 1 - len(node.input)))
        node.input[place] = name
    return node


def sets(name: str, *values: Any) -> Change:
    """One attribute with each of these values that is not its own."""

    def change(site: Site) -> Iterator[Rival]:
        if name in site.attributes:
            now = site.attribute(name)
            for value in values:
                if value != now and not (
                    isinstance(value, float) and now is not None and np.isclose(now, value, rtol=1e-6, atol=0)
                ):
                    yield Rival(f"{name}={spelt(value)}", (altered(site, {name: value}),))

    return change


def drops(*names: str) -> Change:
    """Attributes that the node states are ignored, each alone: the default rules."""

    def change(site: Site) -> Iterator[Rival]:
        for name in names:
            if any(a.name == name for a in site.proto.attribute):
                node = altered(site, {name: None})
                default = Site(node, site.opset, site.value).attribute(name)
                if default != site.attribute(name):
                    yield Rival(f"{name} ignored" + ("" if default is None else f" ({spelt(default)})"), (node,))

    return change


def moves_axis(name: str = "axis", least: int = 0, beyond: int = 0) -> Change:
    """Another axis. least: the first that makes sense; beyond: how many past the last do."""

    def change(site: Site) -> Iterator[Rival]:
        now = site.attribute(name)
        if isinstance(now, int) and name in site.attributes:
            for axis in range(least, site.rank + beyond):
                if axis != now % max(site.rank + beyond, 1):
                    yield Rival(f"{name}={axis}", (altered(site, {name: axis}),))

    return change


def feeds(text: str, rewrite: Rewrite) -> Change:
    """Other values of inputs by position (None: input left out); the rewrite gives None where it does not apply."""

    def change(site: Site) -> Iterator[Rival]:
        values = rewrite(site)
        if values:
            names = {place: "" if value is None else f"{NEW}{place}" for place, value in values.items()}
            fed = {names[place]: np.ascontiguousarray(value) for place, value in values.items() if value is not None}
            yield Rival(text, (altered(site, {}, names),), fed)

    return change


def lacks(place: int, text: str) -> Change:
    """An optional input is not read."""
    return feeds(text, lambda site: {place: None} if place < len(site.proto.input) and site.proto.input[place] else None)


def ignores(place: int, text: str, other: float) -> Change:
    """An input is not read: this value all over, in its place."""

    def rewrite(site: Site) -> Mapping[int, Array | None] | None:
        value = site.given(place)
        return None if value is None or (value == other).all() else {place: np.full_like(value, other)}

    return feeds(text, rewrite)


def replaces(place: int, text: str, function: Callable[[Array], Array | None]) -> Change:
    """One input, put through a function (None: does not apply)."""

    def rewrite(site: Site) -> Mapping[int, Array | None] | None:
        value = site.given(place)
        other = None if value is None else function(value)
        return None if value is None or other is None or np.array_equal(other, value) else {place: other}

    return feeds(text, rewrite)


def multiplies(name: str, factor: Callable[[Site], Any], text: str) -> Change:
    """An attribute times a number, worked out from the node (None: does not apply)."""

    def change(site: Site) -> Iterator[Rival]:
        now, by = site.attribute(name), factor(site)
        if now is not None and by is not None and by != 1:
            yield Rival(text, (altered(site, {name: float(now) * float(by)}),))

    return change


def of_data(place: int, change: Change) -> Change:
    """Only where the input is computed: of constants `weights` tries more."""

    def data_only(site: Site) -> Iterator[Rival]:
        if place < len(site.proto.input) and site.proto.input[place] not in site.fixed:
            yield from change(site)

    return data_only


def is_op(op: str, text: str = "", keep: Sequence[str] = ()) -> Change:
    """Another operator on the same inputs, with only these attributes."""

    def change(site: Site) -> Iterator[Rival]:
        node = altered(site, {a.name: None for a in site.proto.attribute if a.name not in keep})
        node.op_type = op
        yield Rival(text or op, (node,))

    return change


def reads_as_opset(text: str, when: Callable[[int], bool], opset: int) -> Change:
    """The operator of another opset version."""

    def change(site: Site) -> Iterator[Rival]:
        if when(site.opset):
            yield Rival(text, (site.proto,), opset=opset)

    return change


def swaps_inputs(text: str = "inputs swapped") -> Change:
    def change(site: Site) -> Iterator[Rival]:
        first, second = site.proto.input[0], site.proto.input[1]
        if first != second:
            yield Rival(text, (altered(site, {}, {0: second, 1: first}),))

    return change


def spelt(value: Any) -> str:
    """A value as one writes it in a sentence."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return "[" + ", ".join(map(spelt, value)) + "]" if isinstance(value, (list, tuple)) else str(value)
