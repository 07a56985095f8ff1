"""The live values of one pass over some nodes: fed or made, handed to their readers, freed after the last one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bisect_align.golden.protocol import Array, Counters, Unavailable
from bisect_align.golden.randomness import Chance
from bisect_align.golden.sessions import Sessions, plain_words, spoken
from bisect_align.golden.values import Carried, carry, cast
from bisect_align.model.graph import Graph, Node


class Walk:
    """State of one pass; the caller runs the nodes in order: run, then put each output, then release the node.

    A feed is carried when it is first read, and wins over what a node makes under its name; that wins over a settled value.
    """

    def __init__(
        self, graph: Graph, sessions: Sessions, counters: Counters, nodes: Sequence[int], feeds: Mapping[str, Array]
    ) -> None:
        self._graph = graph
        self._sessions = sessions
        self._counters = counters
        self._feeds = feeds
        self._made = {name for index in nodes for name in graph.nodes[index].makes}
        self._fed = {index: self._needs(graph.nodes[index]) for index in nodes}
        self._readers = Counter(name for names in self._fed.values() for name in names)
        self._live: dict[str, Carried | Unavailable] = {}
        self._nbytes = 0

    def run(self, node: Node) -> dict[str, Carried | Unavailable]:
        """The node's outputs; Unavailable with one reason for all where it cannot run on what it reads. Raises EngineError."""
        feeds: dict[str, Carried] = {}
        for name in self._fed[node.index]:
            value = self._read(name)
            if isinstance(value, Unavailable):
                # The first cause, not a chain of them.
                return dict.fromkeys(node.makes, value)
            feeds[name] = value
        if self._sessions.chance(node) is Chance.FREE:
            return dict.fromkeys(node.makes, Unavailable(f"{spoken(node)} is random: differs at every run"))
        session = self._sessions.of(node, feeds, self._nbytes)
        self._counters.node_runs += 1
        try:
            made = session.run(feeds)
        except Exception as error:  # ONNX Runtime raises a dozen classes, all of them only Exceptions
            return dict.fromkeys(node.makes, Unavailable(f"{spoken(node)} cannot run: {plain_words(error)}"))
        self._note(self._nbytes + sum(value.nbytes for value in made.values()))
        return dict(made)

    def put(self, name: str, value: Carried | Unavailable, *, instead: bool = False) -> None:
        """What the readers of this tensor shall read; instead: in place of a feed of that name too."""
        if self.is_read(name, fed=instead):
            self._keep(name, value)

    def is_read(self, name: str, *, fed: bool = False) -> bool:
        """True where a node to come reads this tensor as made (fed: or would, but for a feed of that name)."""
        return self._readers[name] > 0 and (fed or name not in self._feeds)

    def release(self, node: Node) -> None:
        """Free what this node was the last to read."""
        for name in self._fed[node.index]:
            self._readers[name] -= 1
            if self._readers[name] == 0:
                value = self._live.pop(name, None)
                if isinstance(value, Carried):
                    self._nbytes -= value.nbytes

    def _needs(self, node: Node) -> list[str]:
        """What the node is fed: all that it reads, except what the graph holds and nothing replaces."""
        return [name for name in node.reads if not self._graph.holds(name) or name in self._feeds or name in self._made]

    def _read(self, name: str) -> Carried | Unavailable:
        value = self._live.get(name)
        if value is None:
            known = self._graph.types.get(name)
            array = self._feeds[name]
            dtype = known.dtype if known is not None else None
            value = carry(array if dtype is None else cast(array, dtype, name))
            self._keep(name, value)
        return value

    def _keep(self, name: str, value: Carried | Unavailable) -> None:
        self._live[name] = value
        if isinstance(value, Carried):
            self._nbytes += value.nbytes
            self._note(self._nbytes)

    def _note(self, nbytes: int) -> None:
        self._counters.peak_live_bytes = max(self._counters.peak_live_bytes, nbytes)
