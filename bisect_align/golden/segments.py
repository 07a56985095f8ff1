"""The reference engine: every node is a session of its own, so that any pass is a plain loop over nodes.

Bit-identical to one session over the whole model with optimisations off, whatever is asked for, as long as weights stay
initializers and nodes run on one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx

from bisect_align.errors import EngineError, InputsError, ModelError
from bisect_align.golden.protocol import Array, Counters, Hook, Perturb, Unavailable, Value
from bisect_align.golden.sessions import Sessions
from bisect_align.golden.values import Carried, carry, cast, shown
from bisect_align.golden.walk import Walk
from bisect_align.model.dtypes import is_float
from bisect_align.model.graph import Graph
from bisect_align.model.rival import with_nodes

# Sessions of one node are small; this holds all of a model's where it weighs a few hundred MB.
_DEFAULT_MEMORY = 1 << 30


class SegmentEngine:
    """Golden engine of one-node ONNX Runtime sessions (see `protocol.Golden`).

    memory: bytes for cached sessions and live values together (default 1 GiB); what does not fit is made again when needed,
    so it bounds caching, never correctness. Arrays that the engine hands out are read-only.

    Feeds of a floating point dtype other than the model's are cast; all other differences of dtype raise ValueError. A feed
    that names a constant replaces it, as a session input. All methods raise EngineError where ONNX Runtime refuses a node.
    """

    def __init__(self, graph: Graph, *, memory: int | None = None) -> None:
        self._graph = graph
        self._sessions = Sessions(graph, _DEFAULT_MEMORY if memory is None else memory)
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """What has been done so far."""
        return self._counters

    def settle(self, values: Mapping[str, Array]) -> Graph:
        """From now on the nodes that make these tensors need not run, see `Graph.with_settled`; the graph that the engine then has."""
        self._graph = self._sessions.graph = self._graph.with_settled(values)
        return self._graph

    def stream(
        self,
        feeds: Mapping[str, Array],
        wanted: Collection[str],
        *,
        weights: Mapping[str, Array] | None = None,
        perturb: Perturb | None = None,
    ) -> Iterator[tuple[str, Value]]:
        """Golden values of the wanted tensors: graph inputs and constants first, the others in topological order as made.

        A wanted tensor that is fed as well is computed; its consumers read the feed. Raises ValueError for a name that the
        graph does not have, InputsError where a graph input is missing.
        """
        graph = self._graph
        asked = self._known(wanted)
        nodes = self._ancestors(asked, feeds)
        self._counters.stream_passes += 1
        walk = self._walk(nodes, self._with_weights(feeds, weights))
        for name in (*graph.inputs, *graph.constants):
            if name in asked:
                yield name, self._given(name, feeds)
        for index in nodes:
            node = graph.nodes[index]
            made = walk.run(node)
            for name in node.makes:
                if perturb is not None:
                    made[name] = _perturbed(perturb, name, made[name])
                walk.put(name, made[name])
            walk.release(node)
            for name in node.makes:
                if name in asked:
                    # Popped, not bound: nothing here may hold the array while the generator rests.
                    yield name, _shown(made.pop(name))

    def local(self, feeds: Mapping[str, Array], hook: Hook, nodes: Collection[int] | None = None) -> None:
        """One pass in which consumers read what the hook returns (see `protocol.Golden.local`).

        Where the hook returns None, consumers read the feed of that name if there is one, else the prediction. Raises
        ValueError for an answer whose dtype does not go into the tensor's, and for a tensor that is read, not made, not fed.
        """
        graph = self._graph
        order = range(len(graph.nodes)) if nodes is None else sorted(set(nodes))
        self._check_fed(order, feeds)
        self._counters.local_passes += 1
        walk = self._walk(order, feeds)
        for index in order:
            node = graph.nodes[index]
            made = walk.run(node)
            for name in node.makes:
                value = made.pop(name)
                answer = hook(name, _shown(value))
                if answer is None:
                    walk.put(name, value)
                else:
                    walk.put(name, self._answered(name, value, answer), instead=True)
                del value, answer
            walk.release(node)

    def replay(
        self,
        nodes: Sequence[int],
        feeds: Mapping[str, Array],
        wanted: Sequence[str],
        *,
        weights: Mapping[str, Array] | None = None,
        perturb: Perturb | None = None,
    ) -> dict[str, Value]:
        """Run some nodes on any feeds (see `protocol.Golden.replay`). Raises ValueError for names that do not fit."""
        graph = self._graph
        fed = self._with_weights(feeds, weights)
        order = sorted(set(nodes))
        self._check_fed(order, fed)
        asked = self._known(wanted)
        made_here = {name for index in order for name in graph.nodes[index].makes}
        found: dict[str, Value] = {}
        for name in asked:
            if name not in made_here:
                if name not in fed and not graph.holds(name):
                    raise ValueError(f"{name!r} is wanted and none of the nodes makes it")
                found[name] = self._given(name, fed)
        self._counters.replays += 1
        walk = self._walk(order, fed)
        for index in order:
            node = graph.nodes[index]
            for name, value in walk.run(node).items():
                if name in asked:
                    found[name] = _shown(value)
                if perturb is not None and walk.is_read(name) and isinstance(value, Carried) and is_float(value.dtype):
                    array = shown(value)
                    assert value.dtype is not None
                    assert not isinstance(array, Unavailable)
                    value = carry(cast(perturb(name, array), value.dtype, name))
                walk.put(name, value)
            walk.release(node)
        return {name: found[name] for name in asked}

    def try_nodes(
        self, nodes: Sequence[onnx.NodeProto], feeds: Mapping[str, Array], wanted: Sequence[str], *, opset: int | None = None
    ) -> dict[str, Value]:
        """Run nodes that are not the model's (see `protocol.Golden.try_nodes`). Raises nothing for what cannot run."""
        graph = with_nodes(self._graph, nodes, opset)
        other = SegmentEngine(graph, memory=0)
        other._counters = self._counters
        try:
            return other.replay(range(len(graph.nodes)), feeds, wanted)
        except (EngineError, ModelError, ValueError) as error:
            return dict.fromkeys(wanted, Unavailable(str(error)))

    def _walk(self, nodes: Sequence[int], feeds: Mapping[str, Array]) -> Walk:
        return Walk(self._graph, self._sessions, self._counters, nodes, feeds)

    def _with_weights(self, feeds: Mapping[str, Array], weights: Mapping[str, Array] | None) -> Mapping[str, Array]:
        """Feeds in which the replaced constants are found too, read one by one when a node needs them."""
        if not weights:
            return feeds
        for name in weights:
            if name not in self._graph.constants:
                raise ValueError(f"{name!r} is not a constant of the model")
        return _Layered(weights, feeds)

    def _known(self, wanted: Collection[str]) -> dict[str, None]:
        graph = self._graph
        for name in wanted:
            if name not in graph.producer and name not in graph.constants and name not in graph.inputs:
                raise ValueError(f"the model has no tensor {name!r}")
        return dict.fromkeys(wanted)

    def _ancestors(self, wanted: Collection[str], feeds: Mapping[str, Array]) -> list[int]:
        """Nodes that the wanted tensors need, in order; the search ends at feeds and constants."""
        graph = self._graph
        missing = {name for name in wanted if name in graph.inputs and name not in feeds}
        seen: set[int] = set()
        waiting = [graph.producer[name] for name in wanted if name in graph.producer]
        while waiting:
            index = waiting.pop()
            if index in seen:
                continue
            seen.add(index)
            for name in graph.nodes[index].reads:
                if name in feeds or name in graph.constants:
                    continue
                if name in graph.producer:
                    waiting.append(graph.producer[name])
                else:
                    missing.add(name)
        if missing:
            raise InputsError(f"no value is given for graph input {', '.join(map(repr, sorted(missing)))}")
        return sorted(seen)

    def _check_fed(self, nodes: Sequence[int], feeds: Mapping[str, Array]) -> None:
        graph = self._graph
        made: set[str] = set()
        for index in nodes:
            node = graph.nodes[index]
            for name in node.reads:
                if name not in made and name not in feeds and not graph.holds(name):
                    raise ValueError(f"node {node.label!r} reads {name!r}, which is neither fed nor made before it")
            made.update(node.makes)

    def _given(self, name: str, feeds: Mapping[str, Array]) -> Value:
        if name not in feeds:
            return _no_strings(self._graph.constant(name))
        array = np.asarray(feeds[name])
        known = self._graph.types.get(name)
        return _no_strings(array if known is None or known.dtype is None else cast(array, known.dtype, name))

    def _answered(self, name: str, predicted: Carried | Unavailable, answer: Array) -> Carried:
        if isinstance(predicted, Carried):
            dtype = predicted.dtype
            if dtype is None:
                raise ValueError(f"{name!r} is no tensor ({predicted.type}) and cannot be fed")
        else:
            known = self._graph.types.get(name)
            dtype = known.dtype if known is not None else None
        return carry(answer if dtype is None else cast(answer, dtype, name))


class _Layered(Mapping[str, Array]):
    """Two mappings as one, the first first; nothing is copied (ChainMap would read a value to look for a name)."""

    def __init__(self, first: Mapping[str, Array], second: Mapping[str, Array]) -> None:
        self._first, self._second = first, second

    def __getitem__(self, name: str) -> Array:
        return self._first[name] if name in self._first else self._second[name]

    def __contains__(self, name: object) -> bool:
        return name in self._first or name in self._second

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from (name for name in self._second if name not in self._first)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _perturbed(perturb: Perturb, name: str, value: Carried | Unavailable) -> Carried | Unavailable:
    """A float tensor as the perturbation leaves it; anything else as it is."""
    if isinstance(value, Unavailable) or value.dtype is None or not is_float(value.dtype):
        return value
    array = shown(value)
    assert not isinstance(array, Unavailable)
    return carry(cast(perturb(name, array), value.dtype, name))


def _no_strings(array: Array) -> Value:
    return Unavailable("a string tensor") if array.dtype.kind in "OUST" else array


def _shown(value: Carried | Unavailable) -> Value:
    return value if isinstance(value, Unavailable) else shown(value)
