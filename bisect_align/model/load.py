"""Reading a model: a file in, a Graph out, and one clear line for whatever is wrong with the file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from bisect_align.errors import ModelError, one_line
from bisect_align.model.constants import embedded, external_span, is_external
from bisect_align.model.graph import Graph, external_constants, graph_of
from bisect_align.model.infer import light
from bisect_align.model.scopes import bodies
from bisect_align.model.upcast import half_of, upcast

# protobuf cannot hold more in one message.
_PROTOBUF_LIMIT = 2**31 - 1

_HINT = "a model in ONNX format is expected"


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read. sha256: of the model file as it lies there (external data not included).

    graph: up-cast to float32 where the file is in half precision (graph.upcast_from says so).
    """

    graph: Graph
    path: Path
    sha256: str
    warnings: tuple[str, ...]


def load(path: Path) -> Model:
    """Read a model and index it. Findings of the ONNX checker are warnings: many models that run are not quite valid.

    External data stays in its file until it is asked for. Raises ModelError.
    """
    model, digest = read(path)
    warnings = list(_findings(model))
    with _told_of(path):
        half = half_of(model)
        if half is not None:
            model, more = upcast(model)
            warnings.extend(more)
        graph = graph_of(model, folder=path.parent, upcast_from=half)
        for name in external_constants(graph):
            external_span(graph.constants[name], graph.folder)
    return Model(graph, path, digest, tuple(warnings))


def read(path: Path) -> tuple[ModelProto, str]:
    """The model as it stands in the file, with its SHA-256; large weights in external files are left there.

    External tensors inside bodies, functions and attributes are embedded, since nothing else knows where they lie.
    Raises ModelError.
    """
    content = _content(path)
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except Exception:  # protobuf's DecodeError, whose package states no types
        raise ModelError("is no ONNX model, or is truncated", where=str(path), hint=_looks_like(content)) from None
    if not model.ir_version or not model.HasField("graph") or not (model.opset_import or model.graph.node):
        raise ModelError("is no ONNX model", where=str(path), hint=_looks_like(content))
    if not model.graph.output:
        raise ModelError("the graph has no outputs", where=str(path), hint="truncated, or a training or library model?")
    with _told_of(path):
        for tensor in _inner_tensors(model):
            if is_external(tensor):
                tensor.CopyFrom(embedded(tensor, path.parent, tensor.name))
    return model, hashlib.sha256(content).hexdigest()


@contextmanager
def _told_of(path: Path) -> Iterator[None]:
    """Errors that name the file. What protobuf and numpy stumble over in a damaged file is a ModelError too."""
    try:
        yield
    except ModelError as error:
        raise ModelError(error.what, where=f"{path}: {error.where}" if error.where else str(path), hint=error.hint) from None
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:  # a UnicodeDecodeError is a ValueError
        raise ModelError(f"the model is damaged: {one_line(error)}", where=str(path), hint="fetch or export it anew") from None


def _content(path: Path) -> bytes:
    where = str(path)
    try:
        if path.is_dir():
            inside = sorted(file.name for file in path.glob("*.onnx"))
            hint = f"name the file in it: {', '.join(inside[:3])}" if inside else "name a .onnx file"
            raise ModelError("is a folder, not a model", where=where, hint=hint)
        if not path.exists():
            raise ModelError("no such model file", where=where, hint="check the path")
        if not path.is_file():
            raise ModelError("is no regular file", where=where, hint=_HINT)
        size = path.stat().st_size
        if size == 0:
            raise ModelError("the model file is empty", where=where, hint="was the download or the export cut short?")
        if size > _PROTOBUF_LIMIT:
            raise ModelError("is over 2 GB in one file", where=where, hint="save its weights as external data")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"cannot be read: {error.strerror or error}", where=where, hint="check the path and its rights"
        ) from None


def _looks_like(content: bytes) -> str:
    """What else the file may be, and what to do."""
    if content.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer: fetch the file itself with git lfs pull"
    if content.startswith(b"PK\x03\x04"):
        return "it is a zip archive, perhaps a PyTorch checkpoint: export it to ONNX"
    if content[4:8] == b"TFL3":
        return "it is a TFLite model: convert it to ONNX"
    if content[4:8] == b"ORTM":
        return "it is an ONNX Runtime .ort file: give the .onnx that it was made from"
    if content.lstrip()[:1] in (b"<", b"{"):
        return "it is a text file: a model in ONNX format is expected"
    return _HINT


def _findings(model: ModelProto) -> Iterator[str]:
    try:
        onnx.checker.check_model(light(model))
    except Exception as error:  # of whatever kind: the checker is asked for advice only
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        yield f"the ONNX checker says: {lines[0] if lines else type(error).__name__}"


def _inner_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Tensors inside attributes, bodies and functions; not the initializers and Constant nodes of the top graph."""
    for node in model.graph.node:
        if node.op_type != "Constant":
            yield from _node_tensors((node,))
    for function in model.functions:
        yield from _node_tensors(function.node)


def _node_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
        for body in bodies(node):
            yield from _body_tensors(body)


def _body_tensors(body: GraphProto) -> Iterator[TensorProto]:
    yield from body.initializer
    yield from _node_tensors(body.node)
