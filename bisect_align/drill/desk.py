"""What commands work with: the terrain, the run opened again where that can be done, and where the result lies."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from bisect_align.drill.navigation import Learnt
from bisect_align.drill.terrain import Terrain, size_of
from bisect_align.errors import UsageError
from bisect_align.session.progress import SILENT, Progress
from bisect_align.session.reopen import Reopened

# Writes the case of a tensor's region to a folder (None: its default place beside the result); says where and how to run it.
Extract = Callable[[str, int, Path | None], str]


@dataclass(frozen=True, slots=True)
class Desk:
    """run: None where model, dump or inputs are not as the run saw them; missing says what, in one line. folder: of the result."""

    terrain: Terrain
    folder: Path
    run: Reopened | None = None
    missing: str = ""
    extract: Extract | None = None
    progress: Progress = SILENT

    def values(self) -> Reopened:
        """The run opened again. Raises UsageError with what is missing."""
        if self.run is None:
            raise UsageError(f"no values can be had: {self.missing or 'the run is not open'}")
        return self.run

    def ask(self, tensors: Collection[str]) -> Mapping[str, Learnt]:
        """States of tensors that nobody has compared yet."""
        found = self.values().compare(tensors, self.progress)
        return {tensor: Learnt(one.state, one.reason, size_of(one.figures)) for tensor, one in found}

    def tensor(self, word: str) -> str:
        """The tensor that a word means: its name, its node's name, or a piece that only one name holds. Raises UsageError."""
        terrain = self.terrain
        if terrain.knows(word):
            return word
        by_node = [row.name for row in terrain.result.tensors if row.node == word]
        found = by_node or [name for name in terrain.places if word.lower() in name.lower()]
        if len(found) == 1:
            return found[0]
        if found:
            more = f" and {len(found) - 4} more" if len(found) > 4 else ""
            raise UsageError(f"{word!r} is in {len(found)} names: {', '.join(found[:4])}{more}", hint="write more of it")
        near = difflib.get_close_matches(word, terrain.places, 3, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else "find TEXT searches names and operators"
        raise UsageError(f"no tensor is called {word!r}", hint=hint)
