"""Progress of work that somebody watches and may break off."""

from __future__ import annotations

import time
from collections.abc import Callable

_EVERY = 0.1  # seconds between two words on the screen


class Broken(Exception):
    """The user has broken off the work."""


class Watched:
    """Tells a screen where the work is; raises Broken at the next step once the user wants it to end.

    ended: asked at each step; say: takes one line.
    """

    def __init__(self, what: str, ended: Callable[[], bool], say: Callable[[str], None]) -> None:
        self._what, self._ended, self._say = what, ended, say
        self._stage, self._total, self._at, self._said = "", 0, 0, 0.0

    def stage(self, name: str, total: int | None = None) -> None:
        self._stage, self._total, self._at, self._said = name, total or 0, 0, 0.0
        self._step()

    def advance(self, n: int = 1) -> None:
        self._at += n
        self._step()

    def close(self) -> None:
        pass

    def _step(self) -> None:
        if self._ended():
            raise Broken
        now = time.monotonic()
        if now - self._said >= _EVERY:
            self._said = now
            count = f" {self._at} of {self._total}" if self._total else ""
            self._say(f"{self._what}: {self._stage}{count} (Esc breaks it off)")
