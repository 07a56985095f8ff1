"""Crops of a small model: the same operators on less, as an edit that can be applied to any model with the same tensor names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, numpy_helper

from bisect_align.errors import EngineError, ModelError
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.graph import graph_of

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Crop:
    """parts: (tensor, axis, first, end) to keep of inputs and initializers. sizes: what whole numbers in shape constants become.
    shifts: what is subtracted from indices: tensor -> (component of the last axis, or None for all of it; amount; number of rows).
    ungroup: grouped convolutions become plain ones."""

    parts: tuple[tuple[str, int, int, int], ...]
    sizes: tuple[tuple[int, int], ...] = ()
    shifts: tuple[tuple[str, int | None, int, int], ...] = ()
    ungroup: bool = False

    def array(self, name: str, values: Array) -> Array:
        """What becomes of a tensor's values."""
        for tensor, axis, first, end in self.parts:
            if tensor == name:
                values = values[(slice(None),) * axis + (slice(first, end),)]
        for tensor, component, amount, rows in self.shifts:
            if tensor == name and (component is None or component < values.shape[-1]):
                place = ... if component is None else (..., component)
                values = values.copy()
                values[place] = np.clip(values[place] - amount, 0, rows - 1)
        return np.ascontiguousarray(values) if values.ndim else values

    def model(self, model: ModelProto) -> ModelProto:
        """A cropped copy; it states no shapes, but for those that `stated` puts in."""
        new = ModelProto()
        new.CopyFrom(model)
        touched = {p[0] for p in self.parts} | {s[0] for s in self.shifts}
        for tensor in new.graph.initializer:
            values = None
            if tensor.name in touched:
                values = self.array(tensor.name, numpy_helper.to_array(tensor))
            elif self.sizes and len(tensor.dims) == 1:
                old = numpy_helper.to_array(tensor)
                if old.dtype.kind == "i":
                    known = dict(self.sizes)
                    values = np.asarray([known.get(int(v), int(v)) for v in old], old.dtype)
            if values is not None:
                tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        del new.graph.value_info[:]
        for value in (*new.graph.input, *new.graph.output):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
        for node in new.graph.node if self.ungroup else ():
            _ungroup(node)
        return new


def _ungroup(node: NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "group":
            attribute.i = 1


@dataclass(frozen=True, slots=True)
class Small:
    """A model with the values that it is fed, and the element of its only output that counts."""

    model: ModelProto
    inputs: Mapping[str, Array]
    at: tuple[int, ...]
    crops: tuple[Crop, ...] = field(default=())

    def cropped(self, crop: Crop) -> Small:
        """The same after a crop; the element's place must still be found."""
        inputs = {name: crop.array(name, values) for name, values in self.inputs.items()}
        return Small(crop.model(self.model), inputs, self.at, (*self.crops, crop))

    @property
    def size(self) -> int:
        """Elements of all inputs."""
        return sum(int(values.size) for values in self.inputs.values())

    def constants(self) -> dict[str, Array]:
        """Initializers by name."""
        return {tensor.name: numpy_helper.to_array(tensor) for tensor in self.model.graph.initializer}


def run(model: ModelProto, inputs: Mapping[str, Array]) -> Array | None:
    """The only output; None where the model cannot run on these values."""
    try:
        graph = graph_of(model)
        name = graph.outputs[0]
        made = SegmentEngine(graph, memory=0).replay(range(len(graph.nodes)), inputs, [name])[name]
    except (EngineError, ModelError, ValueError, KeyError):
        return None
    return None if isinstance(made, Unavailable) else made


def stated(model: ModelProto, inputs: Mapping[str, Array], output: Array) -> ModelProto:
    """A copy that states the shapes of its inputs and its output."""
    new = ModelProto()
    new.CopyFrom(model)
    for value in (*new.graph.input, *new.graph.output):
        values = inputs.get(value.name, output)
        value.type.tensor_type.ClearField("shape")
        value.type.tensor_type.shape.SetInParent()
        for size in values.shape:
            value.type.tensor_type.shape.dim.add(dim_value=size)
    return new
