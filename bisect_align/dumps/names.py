"""What a file of a dump may be called, and what its name tells of the order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path, PurePosixPath

ENDINGS = (
    *(".npy", ".npz", ".bin", ".raw", ".dat", ".data", ".pb", ".txt", ".safetensors", ".json"),
    *(".tensorproto", ".ieb", ".tensor", ".pt", ".pth"),
)


def printable(text: str) -> str:
    """Without the surrogates by which Python keeps file names that are no UTF-8: those cannot be printed."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def relative(path: Path, root: Path) -> PurePosixPath:
    """The place of a file below the folder of the dump."""
    return PurePosixPath(printable(path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name))


def stem(place: PurePosixPath) -> str:
    """The file's name without its ending; names may hold dots, so only a known ending is cut."""
    name = place.name
    for ending in ENDINGS:
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def path_name(place: PurePosixPath) -> str:
    """The whole place without the ending: nested folders may be parts of a tensor's name."""
    return (place.parent / stem(place)).as_posix()


def shared_folder(places: Sequence[PurePosixPath]) -> PurePosixPath:
    """The deepest folder that holds all of these files."""
    shared = places[0].parent.parts if places else ()
    for place in places:
        equal = takewhile(lambda pair: pair[0] == pair[1], zip(shared, place.parent.parts, strict=False))
        shared = tuple(part for part, _ in equal)
    return PurePosixPath(*shared)


def file_names(place: PurePosixPath, base: PurePosixPath, stems: Counter[str]) -> tuple[str, ...]:
    """Best first: the stem, the place below `base`, the whole place.

    Where several files share the stem, the place below `base` is the better name and comes first.
    """
    plain = stem(place)
    below = path_name(place.relative_to(base)) if place.is_relative_to(base) else plain
    names = (below, plain) if stems[plain] > 1 else (plain, below)
    return tuple(dict.fromkeys((*names, path_name(place))))


def counters(stems: Sequence[str]) -> dict[str, int]:
    """The running numbers of the files of one folder: stem -> number, empty where the names do not count.

    In the order of trust: a whole number ("17"), a leading one ("003_relu"), a trailing one behind one and the same
    word ("tensor_003"). One file in ten may fall out of step ("in0" among numbers).
    """
    for pattern in (r"(?P<n>\d+)", r"(?P<n>\d+)[_.-].+", r"(?P<word>.*\D)(?P<n>\d+)"):
        hits = [hit for text in stems if (hit := re.fullmatch(pattern, text))]
        numbers = {hit.string: int(hit["n"]) for hit in hits}
        words = {hit.groupdict().get("word", "") for hit in hits}
        if len(hits) >= max(2, 0.9 * len(stems)) and len(words) == 1 and len(set(numbers.values())) == len(hits):
            return numbers
    return {}
