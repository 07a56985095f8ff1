"""Reader of .pt files: the tensors that torch.save wrote, without torch and without pickle.

The zip holds a pickle program beside the raw storages. The program is never run by Python's unpickler: its opcodes are walked by
the small machine below, which knows containers, numbers, texts, and five names that tensors are made of. It looks nothing up and
calls nothing; any other name or opcode ends the reading.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import ml_dtypes
import numpy as np

from bisect_align.dumps import buffers, npz
from bisect_align.dumps.entry import Array, Expect
from bisect_align.dumps.piece import Fault, Listing, Piece
from bisect_align.errors import DumpError

STORAGES: dict[str, np.dtype[Any]] = {
    **{f"{word}Storage": np.dtype(kind) for word, kind in (("Float", "f4"), ("Double", "f8"), ("Half", "f2"), ("Bool", "?"))},
    **{f"{word}Storage": np.dtype(kind) for word, kind in (("Long", "i8"), ("Int", "i4"), ("Short", "i2"), ("Char", "i1"))},
    "ByteStorage": np.dtype("u1"),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
}
REBUILD, DICT, PARAMETER = "torch._utils _rebuild_tensor_v2", "collections OrderedDict", "torch._utils _rebuild_parameter"
MOST_OPCODES = 2_000_000
MARK = object()
HINT = "save tensors, or a dict of them, with torch.save; or use .npy or .safetensors"


@dataclass(frozen=True, slots=True)
class _Global:
    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: np.dtype[Any]
    key: str
    elements: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A view of a storage; offset and strides count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def listing(path: Path) -> Listing:
    """All tensors of the file, named by their keys (nested ones joined by dots). Raises DumpError for any other object."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
    except OSError as error:
        raise buffers.unreadable(error, path) from error
    except Exception as error:  # a damaged directory raises BadZipFile, ValueError, struct.error, NotImplementedError ...
        raise DumpError("is no file that torch.save writes today (a zip)", where=str(path), hint=HINT) from error
    program = next((name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")), None)
    if program is None:
        raise DumpError("holds no data.pkl", where=str(path), hint=HINT)
    folder = program.removesuffix("data.pkl")
    if f"{folder}byteorder" in members and npz.member_bytes(path, members[f"{folder}byteorder"]).tobytes() != b"little":
        raise DumpError("is not little-endian", where=str(path))
    try:
        found = _run(npz.member_bytes(path, members[program]).tobytes())
    except DumpError as error:
        raise DumpError(error.what, where=str(path), hint=HINT) from None
    pieces: list[Piece] = []
    faults: list[Fault] = []
    for order, (name, tensor) in enumerate(_tensors(found)):
        try:
            member = members.get(f"{folder}data/{tensor.storage.key}")
            if member is None:
                raise DumpError("has no values in the file")
            pieces.append(_piece(path, member, tensor, name, order))
        except DumpError as error:
            faults.append(Fault(path, error.what, name or None))
    if not pieces and not faults:
        raise DumpError("holds no tensors", where=str(path), hint=HINT)
    alone = len(pieces) == 1 and pieces[0].name == ""
    return Listing(tuple(replace(one, name=None, member=None) for one in pieces) if alone else tuple(pieces), tuple(faults))


def _piece(path: Path, member: zipfile.ZipInfo, tensor: _Tensor, name: str, order: int) -> Piece:
    itemsize = tensor.storage.dtype.itemsize
    reach = tensor.offset + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True))
    if 0 not in tensor.shape and reach * itemsize > member.file_size:
        raise DumpError(f"reaches beyond the {member.file_size} bytes of its storage")
    nbytes = math.prod(tensor.shape) * itemsize
    if nbytes > member.file_size:
        raise DumpError("repeats its storage: save a contiguous tensor")
    reader = partial(_load, path, member, tensor)
    return Piece(path, "pt", nbytes, reader, tensor.storage.dtype, tensor.shape, name, name, order)


def _load(path: Path, member: zipfile.ZipInfo, tensor: _Tensor, expect: Expect | None) -> Array:
    data = npz.member_bytes(path, member)
    dtype = tensor.storage.dtype
    flat: Array = data[: data.size - data.size % dtype.itemsize]
    flat = (flat != 0) if dtype.kind == "b" else np.require(flat, requirements="A").view(dtype)
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    strides = tuple(stride * dtype.itemsize for stride in tensor.strides)
    view = np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides, writeable=False)
    return np.ascontiguousarray(view).reshape(tensor.shape)


def _tensors(value: object, name: str = "", depth: int = 0) -> list[tuple[str, _Tensor]]:
    if isinstance(value, _Tensor):
        return [(name, value)]
    items: list[tuple[object, object]] = []
    if isinstance(value, dict) and depth < 32:
        items = list(value.items())
    elif isinstance(value, list | tuple) and depth < 32:
        items = list(enumerate(value))
    dot = "." if name else ""
    return [pair for key, item in items for pair in _tensors(item, f"{name}{dot}{key}", depth + 1)]


# --- the machine: a stack of plain values ---------------------------------------------------------------------------------


def _run(program: bytes) -> object:
    """What the pickle program builds, of containers, numbers, texts and tensors only. Raises DumpError."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(program)):
            if count > MOST_OPCODES:
                raise DumpError("is too long a program")
            if opcode.name == "STOP":
                return machine.stack.pop()
            machine.step(opcode.name, argument)
    except DumpError:
        raise
    except Exception as error:  # a damaged program: an empty stack, a missing mark, a key that cannot be hashed ...
        raise DumpError("is damaged") from error
    raise DumpError("is damaged")


def _refuse(what: str) -> NoReturn:
    raise DumpError(f"holds more than tensors ({what[:80]}), which is never loaded")


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def marked(self) -> list[Any]:
        """The values above the last mark, taken off the stack with it."""
        at = len(self.stack) - 1 - next(place for place, item in enumerate(reversed(self.stack)) if item is MARK)
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def step(self, name: str, argument: Any) -> None:
        push, pop = self.stack.append, self.stack.pop
        match name:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                push(MARK)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                push({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "INT" | "BININT" | "BININT1" | "BININT2" | "LONG" | "LONG1" | "LONG4" | "FLOAT" | "BINFLOAT":
                push(argument)
            case "UNICODE" | "BINUNICODE" | "SHORT_BINUNICODE" | "BINUNICODE8":
                push(argument)
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                push({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[name])
            case "TUPLE":
                push(tuple(self.marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(name[-1])
                items = self.stack[-size:]
                del self.stack[-size:]
                push(tuple(items))
            case "APPEND":
                item = pop()
                self.stack[-1].append(item)
            case "APPENDS":
                items = self.marked()
                self.stack[-1].extend(items)
            case "SETITEM":
                value, key = pop(), pop()
                self.set(key, value)
            case "SETITEMS":
                items = self.marked()
                for key, value in zip(items[::2], items[1::2], strict=True):
                    self.set(key, value)
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self.memo[int(argument)] = self.stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "BINGET" | "LONG_BINGET" | "GET":
                push(self.memo[int(argument)])
            case "GLOBAL":
                push(_global(argument))
            case "STACK_GLOBAL":
                attribute, module = pop(), pop()
                push(_global(f"{module} {attribute}"))
            case "BINPERSID":
                push(_storage(pop()))
            case "REDUCE":
                arguments, function = pop(), pop()
                push(_made(function, arguments))
            case "BUILD":
                pop()  # the state of an OrderedDict (its _metadata): not looked at
                if not isinstance(self.stack[-1], dict):
                    _refuse("an object with a state")
            case _:
                _refuse(f"opcode {name}")

    def set(self, key: Any, value: Any) -> None:
        if not isinstance(self.stack[-1], dict) or not isinstance(key, str | int):
            _refuse("a table with strange keys")
        self.stack[-1][key] = value


def _global(name: str) -> _Global:
    module, _, attribute = name.partition(" ")
    if name in (REBUILD, DICT, PARAMETER) or (module == "torch" and attribute in STORAGES):
        return _Global(name)
    return _refuse(name.replace(" ", "."))


def _storage(parts: Any) -> _Storage:
    if not isinstance(parts, tuple) or len(parts) != 5 or parts[0] != "storage" or not isinstance(parts[1], _Global):
        _refuse("a foreign storage")
    dtype = STORAGES.get(parts[1].name.removeprefix("torch "))
    if dtype is None or not isinstance(parts[2], str) or type(parts[4]) is not int:
        _refuse("a foreign storage")
    return _Storage(dtype, parts[2], parts[4])


def _made(function: Any, arguments: Any) -> Any:
    name = function.name if isinstance(function, _Global) else ""
    if not isinstance(arguments, tuple):
        _refuse("a call of something else")
    if name == DICT and (not arguments or arguments == ([],)):
        return {}
    if name == PARAMETER and len(arguments) >= 1 and isinstance(arguments[0], _Tensor):
        return arguments[0]
    if name != REBUILD or len(arguments) < 4 or not isinstance(arguments[0], _Storage):
        _refuse(f"a call of {name or 'something else'}")
    storage, offset, shape, strides = arguments[:4]
    sizes, steps = buffers.checked_shape(shape), buffers.checked_shape(strides)
    if type(offset) is not int or offset < 0 or len(sizes) != len(steps):
        _refuse("a damaged tensor")
    return _Tensor(storage, offset, sizes, steps)
