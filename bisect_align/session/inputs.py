"""The values that golden and target were fed: found, named, checked against the model, and never guessed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bisect_align.dumps.catalogue import catalogue as listed
from bisect_align.dumps.entry import Array, Catalogue, Entry, Expect, Quant, Role
from bisect_align.errors import BisectAlignError, DumpError, InputsError
from bisect_align.model.dtypes import is_float

if TYPE_CHECKING:
    from bisect_align.model.graph import Graph, TensorType

Dims: TypeAlias = dict[str, int]

BESIDE = ("inputs.npz", "test_data_set_0")
"""Where inputs are looked for beside the model."""
OWN = "the dump's own copies"
FED = "give what the model itself was fed, after preprocessing"
POSITION = re.compile(r"(input|arr)_(?P<k>\d+)")
"""input_<k>.pb of ONNX test data, arr_<k> of numpy.savez without names: the k-th input of the graph."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """values: one array for each graph input, in the model's own type and row-major order. source: where they come from."""

    values: dict[str, Array]
    source: str
    warnings: tuple[str, ...]

    @property
    def own(self) -> bool:
        """The target's own inputs: there is nothing to compare them with."""
        return self.source == OWN


def load_inputs(path: Path | None, graph: Graph, catalogue: Catalogue | None, model_path: Path) -> Inputs:
    """The inputs of the run.

    From `path` where it is given (.npz, folder, single array), else from entries of the dump that bear the inputs' names, else
    from `inputs.npz` or `test_data_set_0/` beside the model. Raises InputsError where they are missing or do not fit.
    """
    if not graph.inputs:
        return Inputs({}, "the model has no inputs", ())
    for name in graph.inputs:
        kind = graph.types.get(name)
        if kind is not None and kind.kind not in ("tensor", "string", "unknown"):
            raise InputsError(f"input {name!r} is a {kind.kind}, which cannot be given", hint="only tensors are supported")
    if path is not None:
        return _from_path(path, graph, str(path))
    warnings: tuple[str, ...] = ()
    where = "none are in the dump or beside the model"
    if catalogue is not None and (entries := _dumped(graph, catalogue)) is not None:
        try:
            return _checked(graph, entries, OWN)
        except BisectAlignError as error:
            warnings = (f"the dump's own copies of the inputs cannot be used: {error}",)
            where = f"none are beside the model, and {warnings[0]}"
    for place in BESIDE:
        beside = model_path.parent / place
        if beside.exists():
            found = _from_path(beside, graph, f"{place} beside the model")
            return Inputs(found.values, found.source, warnings + found.warnings)
    expected = "; ".join(describe(graph, name) for name in graph.inputs)
    raise InputsError(
        f"no inputs were given, and {where}. Expected: {expected}",
        hint="give --inputs FILE.npz or a folder, with the values that the target was fed",
    )


def describe(graph: Graph, name: str) -> str:
    """One input as the model wants it: `x: float32 [N, 3, 224, 224]`."""
    kind = graph.types.get(name)
    if kind is None:
        return f"{name}: unknown type"
    dtype = kind.dtype.name if kind.dtype is not None else kind.kind
    return f"{name}: {dtype} {_shape_text(kind.shape)}"


def _shape_text(shape: Sequence[int | str | None] | None) -> str:
    return "of any shape" if shape is None else f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


def _from_path(path: Path, graph: Graph, source: str) -> Inputs:
    try:
        found = listed(path)
    except DumpError as error:
        raise InputsError(error.what, where=error.where, hint="--inputs takes an .npz, a folder, or one array") from error
    entries = [entry for entry in found.entries if not _is_test_output(entry)]
    chosen = _by_name(graph.inputs, entries) or {}
    missing = [name for name in graph.inputs if name not in chosen]
    if missing:
        rest = [entry for entry in entries if entry not in chosen.values()]
        chosen |= _by_position(graph.inputs, rest, missing)
        missing = [name for name in graph.inputs if name not in chosen]
    if len(missing) == 1 and len(graph.inputs) == 1 and len(entries) == 1 and _nameless(entries[0]):
        chosen, missing = {missing[0]: entries[0]}, []
    for problem in found.problems:
        if set(problem.names) & set(missing):
            raise InputsError(f"input {missing[0]!r} cannot be used: its file {problem.reason}", where=str(problem.source))
    if missing:
        raise _absent(graph, missing, [entry for entry in entries if entry not in chosen.values()], path)
    unused = [entry.key for entry in entries if entry not in chosen.values()]
    result = _checked(graph, chosen, source)
    extra = (f"{source}: no inputs of the model, left unused: {', '.join(unused[:5])}",) if unused else ()
    return Inputs(result.values, result.source, (*(f"{source}: {note}" for note in found.notes), *result.warnings, *extra))


def _is_test_output(entry: Entry) -> bool:
    """output_<k>.pb of ONNX test data stands beside the inputs and is none."""
    return entry.format in ("pb", "npy") and re.fullmatch(r"output_\d+\.(pb|npy)", entry.source.name) is not None


def _absent(graph: Graph, missing: Sequence[str], rest: Sequence[Entry], path: Path) -> InputsError:
    close = difflib.get_close_matches(missing[0], [name for entry in rest for name in entry.names], n=1, cutoff=0.6)
    held = ", ".join(entry.names[0] for entry in rest[:5])
    hint = f"did you mean {close[0]!r}?" if close else (f"there is {held}" if held else "")
    wanted = "; ".join(describe(graph, name) for name in missing)
    return InputsError(f"the inputs lack {wanted}", where=str(path), hint=hint)


def _nameless(entry: Entry) -> bool:
    """A single array whose name says nothing against its being the only input."""
    return entry.format in ("npy", "raw", "text", "pb") or POSITION.fullmatch(entry.names[0]) is not None


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "_", name).lower()


def _by_name(wanted: Iterable[str], entries: Sequence[Entry]) -> dict[str, Entry]:
    """Entries that bear the inputs' names: exact ones first, else with every sign but letters and digits as `_`, in any case.

    A sanitised name that fits two inputs or two entries is no evidence and is left out.
    """
    wanted = tuple(wanted)
    exact: dict[str, Entry] = {}
    for entry in entries:
        for name in entry.names:
            exact.setdefault(name, entry)
    chosen = {name: exact[name] for name in wanted if name in exact}
    rest = [entry for entry in entries if entry not in chosen.values()]
    for name in wanted:
        alone = sum(_plain(other) == _plain(name) for other in wanted) == 1
        hits = [entry for entry in rest if any(_plain(called) == _plain(name) for called in entry.names)]
        if name not in chosen and alone and len(hits) == 1:
            chosen[name] = hits[0]
    return chosen


def _by_position(inputs: Sequence[str], entries: Sequence[Entry], missing: Sequence[str]) -> dict[str, Entry]:
    chosen: dict[str, Entry] = {}
    for entry in entries:
        for name in entry.names:
            hit = POSITION.fullmatch(name)
            if hit and int(hit["k"]) < len(inputs) and inputs[int(hit["k"])] in missing:
                chosen.setdefault(inputs[int(hit["k"])], entry)
    return chosen


def _dumped(graph: Graph, catalogue: Catalogue) -> dict[str, Entry] | None:
    """The dump's own copy of every input, input copies before target values; None where one is missing."""
    copies = [entry for entry in catalogue.entries if entry.role is Role.INPUT]
    targets = [entry for entry in catalogue.entries if entry.role is Role.TARGET]
    for name in graph.inputs:  # integers for a real input, without a scale, are a quantised copy: not its values
        kind = graph.types.get(name)
        if kind is not None and kind.dtype is not None and is_float(kind.dtype):
            targets = [entry for entry in targets if entry.names[0] != name or _is_real(entry)]
    chosen = _by_name(graph.inputs, targets) | _by_name(graph.inputs, copies)
    if len(graph.inputs) == 1 and not chosen:
        listed_alone = [entry for entry in copies if re.search(r"(^|/)inputs?/\d+$", entry.names[-1])]
        if len(listed_alone) == 1 and len(copies) == 1:  # inputs/0.npy beside outputs/0/: numbered samples bear no name
            chosen = {graph.inputs[0]: listed_alone[0]}
    return chosen if len(chosen) == len(graph.inputs) else None


def _is_real(entry: Entry) -> bool:
    return entry.quant is not None or entry.dtype is None or is_float(entry.dtype)


def _checked(graph: Graph, entries: dict[str, Entry], source: str) -> Inputs:
    values: dict[str, Array] = {}
    warnings: list[str] = []
    dims: dict[str, tuple[int, str]] = {}
    for name in sorted(graph.inputs, key=lambda name: entries[name].shape is None):  # headerless last: others bind their dims
        kind = graph.types.get(name)
        try:
            value = _loaded(name, kind, entries[name], {dim: size for dim, (size, _) in dims.items()})
            if kind is not None and kind.shape is not None:
                _check_shape(name, value.shape, kind.shape, dims)
            wanted = kind.dtype if kind is not None else None
            if wanted is not None and value.dtype != wanted:
                value = _cast(name, value, wanted, warnings)
        except InputsError as error:
            raise InputsError(error.what, where=error.where or str(entries[name].source), hint=error.hint or FED) from error
        values[name] = np.array(value, order="C")
        if is_float(values[name].dtype) and (bad := int(np.sum(~np.isfinite(values[name])))):
            warnings.append(f"input {name!r} holds {bad} values that are not finite")
    return Inputs({name: values[name] for name in graph.inputs}, source, tuple(warnings))


def _loaded(name: str, kind: TensorType | None, entry: Entry, dims: Dims) -> Array:
    expect = None
    if entry.shape is None and kind is not None and kind.dtype is not None and kind.shape is not None:
        expect = Expect(kind.dtype, _headerless_shape(name, kind.dtype, kind.shape, entry, dims))
    try:
        value = entry.load(expect)
    except DumpError as error:
        raise InputsError(f"input {name!r} cannot be used: {error.what}", where=error.where, hint=error.hint) from error
    if entry.quant is not None and kind is not None and kind.dtype is not None and kind.dtype.kind not in "biu":
        return _real(value, entry.quant)
    return value


def _real(value: Array, quant: Quant) -> Array:
    """(q - zero_point) * scale."""
    scale, zero = quant.scale, quant.zero_point
    if quant.axis is not None:
        shape = [1] * value.ndim
        shape[quant.axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    real: Array = ((value.astype(np.float64) - zero) * scale).astype(np.float32)
    return real


def _headerless_shape(
    name: str, dtype: np.dtype[Any], shape: Sequence[int | str | None], entry: Entry, dims: Dims
) -> tuple[int, ...]:
    """The shape of a headerless input: at most one size may be open, and follows from the file's length."""
    sizes = [dims.get(size, size) if isinstance(size, str) else size for size in shape]
    fixed = [size for size in sizes if isinstance(size, int)]
    open_sizes = {str(size) if size is not None else f"?{axis}" for axis, size in enumerate(sizes) if not isinstance(size, int)}
    count = len(sizes) - len(fixed)
    if not count:
        return tuple(fixed)
    unit = math.prod(fixed) * dtype.itemsize
    if entry.format == "text" or len(open_sizes) > 1 or count > 1 or not unit or entry.nbytes % unit:
        why = f"input {name!r} has no header, and {_shape_text(shape)} leaves its shape open"
        raise InputsError(why, where=str(entry.source), hint="save it as .npy or .npz")
    return tuple(size if isinstance(size, int) else entry.nbytes // unit for size in sizes)


def _check_shape(name: str, shape: tuple[int, ...], wanted: Sequence[int | str | None], dims: dict[str, tuple[int, str]]) -> None:
    if len(shape) != len(wanted) or any(isinstance(w, int) and w != s for w, s in zip(wanted, shape, strict=True)):
        turned = sorted(shape) == sorted(w for w in wanted if isinstance(w, int))
        hint = "the same sizes in another order: transpose it to the model's layout" if turned else ""
        what = f"input {name!r} has the shape {list(shape)}, but the model wants {_shape_text(wanted)}"
        raise InputsError(what, hint=hint)
    for size, dim in zip(shape, wanted, strict=True):
        if isinstance(dim, str):
            bound, by = dims.setdefault(dim, (size, name))
            if bound != size:
                other = f"{by!r}" if by != name else "another axis"
                raise InputsError(f"input {name!r} has {dim} = {size}, but {other} has {dim} = {bound}")


def _cast(name: str, value: Array, wanted: np.dtype[Any], warnings: list[str]) -> Array:
    """To the model's type: silently where nothing is lost, with a warning where floats are rounded, else InputsError."""
    have = value.dtype
    called = "text" if have.kind in "US" else have.name
    refusal = InputsError(f"input {name!r} is {called}, but the model wants {wanted.name}")
    if have.kind in "USOc" or wanted.kind in "USOc":
        if have.kind == wanted.kind == "c" or (have.kind in "US" and wanted.kind in "USO"):
            return value.astype(wanted)
        raise refusal
    with np.errstate(all="ignore"):
        cast: Array = value.astype(wanted)
        if _same(value, cast):
            return cast
        lost = int(np.sum(np.isfinite(value) & ~np.isfinite(cast))) if is_float(wanted) else 0
    if not is_float(wanted):
        raise InputsError(refusal.what + ", which cannot hold its values", hint=f"it holds {_example(value, cast)!s}")
    if lost:
        raise InputsError(refusal.what + f": {lost} values are beyond its range")
    warnings.append(f"input {name!r} was rounded from {have.name} to {wanted.name}")
    return cast


def _same(value: Array, cast: Array) -> bool:
    """Whether the cast kept every value: compared in the type that came in, and in a wide float where that would wrap around."""
    back = cast.astype(value.dtype)
    wide = np.float64 if value.dtype.kind != "b" else np.uint8
    equal = (back == value) & (cast.astype(wide) == value.astype(wide))
    if is_float(value.dtype) and is_float(cast.dtype):
        equal |= np.isnan(value) & np.isnan(cast)
    return bool(np.all(equal))


def _example(value: Array, cast: Array) -> Any:
    wrong = np.flatnonzero(value.ravel() != cast.astype(value.dtype).ravel())
    return value.ravel()[int(wrong[0])] if wrong.size else value.ravel()[0]
