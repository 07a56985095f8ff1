"""Make the pictures of docs/drill.md anew: run the demo, walk through the app by keys, export each screen.

python scripts/drill_screens.py [FOLDER]   (default: docs/screens)
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from bisect_align.cli.demo import FOLDER
from bisect_align.cli.main import main
from bisect_align.cli.reopen import options_of
from bisect_align.drill.app import DrillApp
from bisect_align.drill.start import ready

# Picture -> keys that lead to it from the one before.
SCREENS = {
    "graph": (),
    "tensors": ("2",),
    "values": ("3",),
    "proof": ("4",),
    "replay": ("1", "r"),
}
SIZE = (80, 24)


async def shoot(result: Path) -> dict[str, str]:
    """Name -> SVG of each screen, at the size of a small terminal."""
    app = DrillApp(ready(result, options_of))
    found = {}
    async with app.run_test(size=SIZE) as pilot:
        for name, keys in SCREENS.items():
            for key in keys:
                await pilot.press(key)
            await pilot.pause()
            while app.busy:
                await pilot.pause(0.05)
            await pilot.pause(0.2)
            found[name] = app.export_screenshot()
    return found


def run(folder: Path) -> None:
    place = folder.resolve()
    with tempfile.TemporaryDirectory() as aside:
        os.chdir(aside)  # the screens show the result's path: a relative one
        main(["demo"])
        pictures = asyncio.run(shoot(FOLDER / "result"))
        os.chdir(place.parent)
    place.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        (place / f"drill-{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    run(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "docs" / "screens")
