"""The three questions that a golden engine answers (numpy only; the pure rooms import this, never an engine).

A *value* is a numpy array (ml_dtypes for bfloat16, float8 and int4), or `Unavailable` with the reason why no array can be had.
Feeds are graph inputs or any other tensors by name; constants never need to be fed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No array for this tensor: it is a sequence, an optional, a string, or its node could not run on these feeds."""

    reason: str


Value: TypeAlias = "Array | Unavailable"

# Sees each predicted tensor in topological order; returns what its consumers shall read instead, or None for the prediction itself.
Hook: TypeAlias = Callable[[str, "Array | Unavailable"], "Array | None"]

# Receives a tensor's name and value inside a replay, returns the value that its consumers shall read.
Perturb: TypeAlias = Callable[[str, Array], Array]


@dataclass(slots=True)
class Counters:
    """What an engine has done so far; cost classes are tested by these, never by seconds."""

    stream_passes: int = 0
    local_passes: int = 0
    replays: int = 0
    node_runs: int = 0
    peak_live_bytes: int = 0


class Golden(Protocol):
    """A golden engine: deterministic, bounded in memory, bit-identical whatever is asked for."""

    @property
    def counters(self) -> Counters: ...

    def stream(
        self,
        feeds: Mapping[str, Array],
        wanted: Collection[str],
        *,
        weights: Mapping[str, Array] | None = None,
        perturb: Perturb | None = None,
    ) -> Iterator[tuple[str, Value]]:
        """Golden values of the wanted tensors, one at a time, in topological order. Runs only what they need.

        weights, perturb: as in `replay`, but perturb is applied to every float tensor made, also as it is yielded (a shadow of
        the golden). `weights` is read name by name as nodes need it, and not kept.
        """
        ...

    def local(self, feeds: Mapping[str, Array], hook: Hook, nodes: Collection[int] | None = None) -> None:
        """One pass in which consumers read what the hook returns, so that every tensor is predicted from target values.

        The hook is called once for each non-empty output of each node run. `nodes` restricts the pass (default: all);
        then the feeds must hold every tensor that these nodes read and none of them makes.
        A node that cannot run on what it is fed gives `Unavailable`; the pass goes on.
        """
        ...

    def replay(
        self,
        nodes: Sequence[int],
        feeds: Mapping[str, Array],
        wanted: Sequence[str],
        *,
        weights: Mapping[str, Array] | None = None,
        perturb: Perturb | None = None,
    ) -> dict[str, Value]:
        """Run the nodes (indices, topological order) on the feeds; the values of the wanted tensors.

        weights: constants to replace. The constants named are then session inputs, not initializers, which changes last
            bits: compare with a replay that names the same constants.
        perturb: applied to every float tensor that the nodes make and other nodes of the replay read, before they read it;
            not to the wanted tensors as they are returned.
        A feed named like a tensor that one of the nodes makes wins over it for the consumers.
        """
        ...

    def try_nodes(
        self, nodes: Sequence[Any], feeds: Mapping[str, Array], wanted: Sequence[str], *, opset: int | None = None
    ) -> dict[str, Value]:
        """Run nodes that are not the model's (onnx.NodeProto, in topological order) on the feeds; the values of the wanted tensors.

        They read the model's constants and functions, and obey its opset imports; opset: another version of the standard operators.
        What cannot be run gives `Unavailable`, also where `replay` raises: a guess may be nonsense.
        """
        ...
