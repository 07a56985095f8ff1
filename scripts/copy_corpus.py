"""Copy the part of a full test corpus that ships with the project: python scripts/copy_corpus.py SRC DST.

SRC holds bugs/, healthy/ and models/; DST gets bugs/, healthy/ and nets/ (the networks that several cases share), and the paths
in each case.json follow. A clone must stay small, so the largest cases stay outside; the whole corpus can be scored by naming its
folder in BISECT_ALIGN_CORPUS (see tests/corpus).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Up to 5 MB each; what they test is also tested by smaller cases or outside the clone.
TOO_LARGE = {
    "ort-int8-saturation-aecmos",
    "qnn-pplcnet_cut-int8-batchnorm-in-noise",
    "openvino-bf16-gathernd-masked-in-noise",
    "ort-tinyformer-int8_qdq",
}
SMALL_NETS = ("-mnist-", "-tinyformer-")
# One healthy run a precision of the one real network, from three toolchains.
PPOCR = {
    "openvino-ppocr_cls-bf16_fused",
    "qnn-ppocr_cls-int8",
    "tpumlir_cvimodel-ppocr_cls-bf16",
    "tpumlir_cvimodel-ppocr_cls-int8",
}
LIMIT = 30_000_000


def chosen(case: Path) -> bool:
    """True where the case ships with the project."""
    if case.name in TOO_LARGE:
        return False
    if case.parent.name == "bugs":
        return True
    return case.name in PPOCR or any(net in case.name for net in SMALL_NETS)


def copy_file(source: Path, target: Path) -> None:
    """Contents only: the source may be read-only, the copy must not be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def copy_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            copy_file(path, target / path.relative_to(source))


def copy_case(source: Path, target: Path) -> None:
    copy_tree(source, target)
    case = target / "case.json"
    case.write_text(case.read_text(encoding="utf-8").replace('"../../models/', '"../../nets/'), encoding="utf-8")


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    for group in ("bugs", "healthy", "nets"):
        shutil.rmtree(target / group, ignore_errors=True)
    for net in sorted(path for path in (source / "models").iterdir() if path.is_dir()):
        copy_tree(net, target / "nets" / net.name)
    for case in sorted(source.glob("*/*/case.json")):
        if chosen(case.parent):
            copy_case(case.parent, target / case.parent.parent.name / case.parent.name)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    cases = len(list(target.glob("*/*/case.json")))
    print(f"{cases} cases, {size / 1e6:.1f} MB")
    return 0 if size <= LIMIT else 1


if __name__ == "__main__":
    raise SystemExit(main())
