"""A progress bar on standard error, for people only."""

from __future__ import annotations

import sys
from typing import Any

from bisect_align.session.progress import SILENT, Progress


class Bar:
    """One bar at a time, wiped when its stage ends."""

    def __init__(self) -> None:
        self._bar: Any = None

    def stage(self, name: str, total: int | None = None) -> None:
        from tqdm import tqdm

        self.close()
        self._bar = tqdm(total=total, desc=name, leave=False, file=sys.stderr, dynamic_ncols=True, delay=0.5)

    def advance(self, n: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def progress(*, quiet: bool) -> Progress:
    """A bar where somebody watches standard error, silence elsewhere."""
    return Bar() if sys.stderr.isatty() and not quiet else SILENT
