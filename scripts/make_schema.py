"""Write bisect_align/result/result.schema.json from the dataclasses of the Result: python scripts/make_schema.py."""

from __future__ import annotations

from pathlib import Path

from bisect_align.result.schema import schema_text

TARGET = Path(__file__).resolve().parent.parent / "bisect_align" / "result" / "result.schema.json"

if __name__ == "__main__":
    TARGET.write_text(schema_text(), encoding="utf-8")
    print(f"{TARGET.name} written")
