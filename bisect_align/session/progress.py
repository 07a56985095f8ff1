"""How a run says where it is; the session knows nothing of bars and terminals."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of each stage of a run as it begins, and of each step in it."""

    def stage(self, name: str, total: int | None = None) -> None:
        """A new stage begins (the one before has ended); total: its steps, None where they are not known."""
        ...

    def advance(self, n: int = 1) -> None:
        """n steps of the stage are done."""
        ...

    def close(self) -> None:
        """The run has ended, well or not."""
        ...


class _Silent:
    def stage(self, name: str, total: int | None = None) -> None:
        pass

    def advance(self, n: int = 1) -> None:
        pass

    def close(self) -> None:
        pass


SILENT: Progress = _Silent()
