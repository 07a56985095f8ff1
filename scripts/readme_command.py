"""Print the first bash block of README.md that holds a word: python scripts/readme_command.py WORD.

Tests and CI run what a reader would paste, so that the README cannot drift from the project.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def command(readme: str, word: str) -> str:
    """The block's text. Raises LookupError where no block holds the word."""
    for block in re.findall(r"^```bash\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL):
        if word in block:
            return str(block).strip()
    raise LookupError(f"README.md has no bash block with {word!r}")


if __name__ == "__main__":
    print(command(README.read_text(encoding="utf-8"), sys.argv[1]))
