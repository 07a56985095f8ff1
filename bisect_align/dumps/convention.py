"""A toolchain's dump convention as data: how to know its folder, what its file names mean, and who says so.

One TOML file a toolchain stands in `conventions/`; a user's own file has the same form and is checked here.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from bisect_align.dumps import dtypes, strict
from bisect_align.dumps.entry import Rewrite
from bisect_align.errors import DumpError

Confidence: TypeAlias = Literal["measured", "vendor", "secondary", "unverified"]
"""measured: seen in runs of our own. vendor: read in the vendor's source or manual. secondary: a user's script, log or report.
unverified: general knowledge that nobody looked up."""
CONFIDENCES: tuple[str, ...] = get_args(Confidence)

GENERIC = "generic"
AUTO = "auto"
GROUPS = frozenset(
    {
        *("tensor", "node", "index", "decoration", "direction", "native"),  # the name and what it says of the value
        *("sample", "time", "order", "id"),  # which sample, which run, place in the run, key of a sidecar
        *("shape", "n", "d1", "d2", "c", "h", "w", "dtype"),  # what the name says of the bytes
        *("op", "core", "graph", "slice", "task", "stream", "iteration", "layout"),  # recognised, and left out of the name
    }
)
SANITISERS: dict[str, tuple[Rewrite, ...]] = {
    "slash": (Rewrite("/", "_"),),
    "slash-dot": (Rewrite("[/.]", "_"),),
    "ascend": (Rewrite(r"[./\\ ]", "_"),),
    "openvino": (Rewrite(r"[\\/ ]", "_"), Rewrite(":", "-"), Rewrite(r"(?s)^.+(?=.{240}$)", "")),
    "word-dash": (Rewrite("[^a-zA-Z0-9_-]", "_"),),
    "alphanumeric": (Rewrite("[^a-zA-Z0-9]", "_"),),
    "identifier": (Rewrite(r"\W+", "_"), Rewrite("^(?![A-Za-z_])", "_")),
}
"""What toolchains do to a name, by the names that conventions use. Applied to the names of the model, never inverted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who says so."""

    title: str
    confidence: Confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """How a user makes the dump."""

    text: str
    source: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A folder is this toolchain's where every glob of `files` hits a file, one of the `formats` is there, and `share` of the
    names (members of containers, stems of files) fit `keys`. strength: a marker is a file that no other tool writes."""

    why: str
    source: str
    files: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    keys: str = ""
    share: float = 0.8
    strength: Literal["hint", "pattern", "marker"] = "pattern"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What a file's place in the folder, or an array's key in a container, means; the first pattern that is found in it counts.

    beside: holds only where a file fits this glob. paired: holds only where an entry of a later pattern in the same folder has the
    same value of this group. codes: integers without a scale, left out where the real value is there. format: how a file without
    a known ending is read. dtype: of headerless values, or what the stored integers are the bits of.
    """

    pattern: str
    source: str
    role: Literal["target", "reference", "input", "weight", "skip"] = "target"
    format: Literal["", "text", "raw", "npy", "ieb", "pb", "pt"] = ""
    dtype: str = ""
    beside: str = ""
    paired: str = ""
    codes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Suffix:
    """An ending of names. decoration: the name without it is the tensor's; otherwise the whole name is another value."""

    pattern: str
    text: str
    source: str
    decoration: bool = True
    view: Literal["", "before", "consumers", "codes"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """A file that tells names, shapes, types or scales. columns, csv: `key` and `name` are columns from 0, negative ones from the
    end; lines whose columns `equal` differ are left out. json: an object, or a list of objects with the fields `key` and `name`.
    join: what the key is: the file's name, its stem, the entry's own name, or a group of the pattern. invert: the JSON object
    goes from the model's name to the file's. rename: the name stands for the file's own before patterns are applied.
    """

    file: str
    format: Literal["columns", "csv", "json", "qnn-net", "tensor-details"]
    source: str
    key: int | None = None
    name: int | None = None
    equal: tuple[int, ...] = ()
    join: str = "stem"
    invert: bool = False
    rename: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """What becomes of a model's name: `rules` of SANITISERS, then `rewrites`, in this order."""

    source: str
    rules: tuple[str, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """reinterpret: integers of this type are the bits of that one ("uint16" = "bfloat16")."""

    text: str
    source: str
    reinterpret: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A hint for readers: what order the values most often have. Nothing is laid out by it; the values decide."""

    order: Literal["as-onnx", "nhwc", "chw", "blocked", "flat", "mixed", "unknown"]
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """A hint: whose name the value of a fused group bears."""

    named: Literal["first", "last", "any", "all", "none", "unknown"]
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantisation:
    """How codes become real values, and where the scales are."""

    real: Literal["(q - zero_point) * scale", "(q + offset) * scale", "q / scale", "q * 2^-fix", "dequantised", "unknown"]
    scale: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """folder: regex of the folders that hold one sample each, its number in the group `sample`."""

    folder: str
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Anything else that one should know."""

    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """One toolchain. Every part names one of `sources`; the confidence of a part is that of its source."""

    name: str
    title: str
    container: Literal["files", "npz", "json", "any"]
    sources: dict[str, Source]
    make: Make
    recognise: tuple[Mark, ...] = ()
    entries: tuple[Pattern, ...] = ()
    suffixes: tuple[Suffix, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    names: NameRule | None = None
    types: Types | None = None
    layout: Layout | None = None
    fused: Fused | None = None
    quantisation: Quantisation | None = None
    samples: Samples | None = None
    facts: tuple[Fact, ...] = ()

    @property
    def rewrites(self) -> tuple[Rewrite, ...]:
        """What becomes of a model's name, step by step."""
        if self.names is None:
            return ()
        return (*(step for rule in self.names.rules for step in SANITISERS[rule]), *self.names.rewrites)

    @property
    def parts(self) -> tuple[tuple[str, Any], ...]:
        """(key, part) of all that names a source, in the order of the file."""
        found: list[tuple[str, Any]] = []
        for item in fields(self):
            value = getattr(self, item.name)
            several = value if isinstance(value, tuple) else (value,)
            found += [
                (f"{item.name}[{position}]" if isinstance(value, tuple) else item.name, part)
                for position, part in enumerate(several)
                if hasattr(part, "source")
            ]
        return tuple(found)

    @property
    def confidences(self) -> dict[str, int]:
        """How many parts have which confidence, strongest first."""
        counts = Counter[str](self.sources[part.source].confidence for _, part in self.parts)
        return {word: counts[word] for word in CONFIDENCES if counts[word]}

    @property
    def confidence(self) -> str:
        """That of most parts; the weaker one of two that are as frequent."""
        counts = self.confidences
        return max(counts, key=lambda word: (counts[word], CONFIDENCES.index(word)))


def parse(text: str, *, where: str) -> Convention:
    """A convention from TOML. Raises DumpError that names the key and what is allowed there."""
    try:
        found = strict.table(Convention, tomllib.loads(text.removeprefix("\ufeff")))
        _check(found)
    except tomllib.TOMLDecodeError as error:
        raise DumpError(f"is no valid TOML: {error}", where=where) from None
    except RecursionError:
        raise DumpError("is nested too deeply", where=where) from None
    except DumpError as error:
        raise DumpError(error.what, where=where, hint=error.hint) from None
    return found


def _check(found: Convention) -> None:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found.name) or found.name == AUTO:
        raise DumpError("name must be lower-case words joined by dashes", hint="for example my-npu")
    for key, part in found.parts:
        if part.source not in found.sources:
            known = ", ".join(found.sources) or "none is there"
            raise DumpError(f"{key}.source is {part.source!r}, which [sources] does not have", hint=known)
    for position, mark in enumerate(found.recognise):
        _regex(mark.keys, f"recognise[{position}].keys", None)
        if not mark.files and not mark.keys and not mark.formats:
            raise DumpError(f"recognise[{position}] needs files, formats or keys")
        if not 0 < mark.share <= 1:
            raise DumpError(f"recognise[{position}].share must be above 0 and at most 1")
    for position, pattern in enumerate(found.entries):
        at = f"entries[{position}]"
        groups = _regex(pattern.pattern, f"{at}.pattern", GROUPS)
        if pattern.paired and pattern.paired not in groups:
            raise DumpError(f"{at}.paired must be a group of the pattern, not {pattern.paired!r}", hint=", ".join(sorted(groups)))
        if pattern.dtype:
            _type(pattern.dtype, f"{at}.dtype")
    for position, suffix in enumerate(found.suffixes):
        _regex(suffix.pattern, f"suffixes[{position}].pattern", frozenset())
    for position, sidecar in enumerate(found.sidecars):
        at = f"sidecars[{position}]"
        if sidecar.join not in {"file", "stem", "name"} | GROUPS:
            raise DumpError(f"{at}.join must be file, stem, name or a group of the patterns, not {sidecar.join!r}")
        if sidecar.format in ("columns", "csv") and (sidecar.key is None or sidecar.name is None):
            raise DumpError(f"{at} needs key and name: the columns, counted from 0")
    if found.names:
        for position, rule in enumerate(found.names.rules):
            if rule not in SANITISERS:
                raise DumpError(f"names.rules[{position}] is {rule!r}, which is not known", hint=", ".join(SANITISERS))
        for position, step in enumerate(found.names.rewrites):
            _regex(step.pattern, f"names.rewrites[{position}].pattern", None)
            try:
                step.apply("a/b")
            except (re.error, IndexError) as error:
                raise DumpError(f"names.rewrites[{position}].by does not go with its pattern: {error}") from None
    for stored, meant in (found.types.reinterpret if found.types else {}).items():
        if _type(stored, f"types.reinterpret.{stored}").itemsize != _type(meant, f"types.reinterpret.{stored}").itemsize:
            raise DumpError(f"types.reinterpret.{stored} must be a type of as many bytes, not {meant!r}")
    if found.samples and "sample" not in _regex(found.samples.folder, "samples.folder", frozenset({"sample"})):
        raise DumpError("samples.folder needs the group (?P<sample>...)")


def _regex(pattern: str, at: str, allowed: frozenset[str] | None) -> frozenset[str]:
    try:
        groups = frozenset(re.compile(pattern).groupindex)
    except (re.error, RecursionError, OverflowError) as error:
        raise DumpError(f"{at} is no regular expression: {error}") from None
    if allowed is not None and (unknown := sorted(groups - allowed)):
        raise DumpError(f"{at} has the group {unknown[0]!r}, which is not known", hint=", ".join(sorted(allowed)) or "none is")
    return groups


def _type(name: str, at: str) -> Any:
    try:
        return dtypes.named(name)
    except DumpError as error:
        raise DumpError(f"{at}: {error.what}", hint=error.hint) from None


@cache
def known() -> tuple[Convention, ...]:
    """All conventions of the package, by name."""
    folder = resources.files("bisect_align.dumps") / "conventions"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")), key=lambda item: item.name)
    return tuple(parse(item.read_text(encoding="utf-8"), where=item.name) for item in files)


def load(given: str) -> Convention:
    """The convention of this name, or a user's own file (a path that ends with .toml). Raises DumpError."""
    for one in known():
        if one.name == given.casefold():
            return one
    path = Path(given)
    if path.suffix.lower() != ".toml":
        names = ", ".join(one.name for one in known())
        raise DumpError(f"no convention is called {given!r}", where="--convention", hint=f"a .toml file of your own, or {names}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DumpError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=given) from None
    except UnicodeDecodeError:
        raise DumpError("is no UTF-8 text", where=given) from None
    return parse(text, where=given)
