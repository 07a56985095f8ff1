"""A chip that is not there: runs an ONNX model node by node as hardware of a given precision would, with at most one fault.

    python scripts/fake_chip.py MODEL INPUTS -o DIR --precision fp16 --fault scale-1.1@TENSOR --density 0.5 --seed 0

INPUTS is an .npz with the graph inputs by name. DIR receives one .npy a tensor, named after the tensor (characters that no
file name can hold are replaced by `_`), for `bisect-align MODEL --inputs INPUTS --target-dump DIR`. What laws there are, and what
they do: chip_laws.py. Noise depends on the seed and the tensor's name alone.
"""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import chip_dumps
import chip_kernels as kernels
import numpy as np
import onnx
from chip_faults import KINDS, NORMS, Site, plant
from chip_laws import INEXACT, LAWS
from chip_net import Net
from chip_numbers import Grid, grid_of_range, weight_grid
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Ranges: TypeAlias = Mapping[str, tuple[float, float]]

MATRIX = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_RECURRENT = ("LSTM", "GRU", "RNN")
# They hand levels on as they are: what comes out lies on the grid of what went in.
_SHAPES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile", "DepthToSpace", "SpaceToDepth")
_PARTS = ("Slice", "Split", "Gather", "Identity", "Dropout", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin")
MOVES = frozenset(_SHAPES + _PARTS)
_BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "BatchNormalization": 2, "LayerNormalization": 2}
# Elements of the larger operand of a product, and multiplications: above it the chip's own arithmetic is too slow in numpy, and
# the library's stands in.
_MOST_ELEMENTS, _MOST_PRODUCTS = 2_000_000, 60_000_000


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of chip_faults.KINDS, planted at the node output `tensor` and read by everything below."""

    kind: str
    tensor: str


class Chip:
    """Hardware of one precision, one noise law and one seed; deterministic. ranges: lowest and highest value of each tensor that
    calibration saw (int8 only). Raises ValueError for a law that there is not, or int8 without ranges."""

    def __init__(self, net: Net, precision: str, law: str = "", seed: int = 0, ranges: Ranges | None = None) -> None:
        self.net, self.precision, self.seed = net, precision, seed
        self.law_name = law or next(iter(LAWS[precision]))
        if self.law_name not in LAWS[precision]:
            raise ValueError(f"{precision} knows the laws {', '.join(LAWS[precision])}, not {law!r}")
        self.law = LAWS[precision][self.law_name]
        if self.law.int8 is not None and ranges is None:
            raise ValueError("int8 needs the ranges that calibration saw")
        self._parameters = frozenset(name for node in net.nodes if node.op_type in NORMS for name in node.input[1:])
        self._matrix_axis = {name: axis for node in net.nodes for name, axis in _weights_of(node, net.opset)}
        self.grids = self._grids(ranges or {}) if self.law.int8 is not None else {}
        self.weights = {name: self._constant(name) for name in net.data}

    def run(
        self, inputs: Mapping[str, Array], fault: Fault | None = None, healthy: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Every node output by name, float32 as a dump tool would write it (integers and bools as they are).

        healthy: the answer of a run without fault on the same inputs; what the fault does not reach is taken from it.
        Raises ValueError where the fault makes no sense.
        """
        values = {name: self._stored(name, np.asarray(value)) for name, value in inputs.items()}
        reached: set[str] = set()
        for node in self.net.nodes:
            made = [name for name in node.output if name]
            culprit = fault is not None and fault.tensor in made
            if healthy is not None and not culprit and reached.isdisjoint(self.net.reads[id(node)]):
                values.update((name, healthy[name]) for name in made)
                continue
            results = [healthy[name] for name in made] if healthy is not None and culprit else self._node(node, values)
            values.update(zip(made, results, strict=True))
            if fault is not None and culprit:
                values[fault.tensor] = self._wrong(fault, node, values)
            reached.update(made)
        return {name: values[name] for name in self.net.tensors}

    # ---- a node ----
    def _node(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> list[Array]:
        rng = np.random.default_rng([self.seed, zlib.crc32(node.output[0].encode())])
        read = self._read(node, values)
        with np.errstate(all="ignore"):  # a planted NaN goes through it
            special = self._own_kernel(node, read)
            results = [special] if special is not None else self.net.run(node, read)
            names = [name for name in node.output if name]
            return [self._written(name, np.asarray(y), node.op_type, rng) for name, y in zip(names, results, strict=True)]

    def _read(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> dict[str, Array]:
        """What the node computes with: values and constants as stored, operands as the matrix unit takes them."""
        known = {**self.weights, **values}
        read = {name: known[name] for name in self.net.reads[id(node)] if name in known}
        if node.op_type in MATRIX:
            for name in node.input[:2]:
                if name in read and read[name].dtype == np.float32:
                    read[name] = self._operand(name, read[name])
        return read

    def _operand(self, name: str, x: Array) -> Array:
        if self.law.operand is not None:
            return self.law.operand(x)
        if self.law.int8 is not None and not self.law.int8.everything and name in self.grids:
            return self.grids[name](x)
        return x

    def _written(self, name: str, y: Array, op: str, rng: np.random.Generator) -> Array:
        if y.dtype != np.float32:
            return y
        if self.law.write is not None and (op in INEXACT or not self.law.inexact_only):
            return self.law.write(y, rng)
        return self._stored(name, y)

    def _stored(self, name: str, x: Array) -> Array:
        if x.dtype != np.float32:
            return x
        if self.law.int8 is None:
            return self.law.store(x)
        if not self.law.int8.everything or name not in self.grids:
            return x
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(x), self.grids[name](x), x)

    # ---- constants and grids ----
    def _constant(self, name: str) -> Array:
        value = self.net.constants[name]
        if self.law.int8 is None:
            store = self.law.folded if self.law.folded is not None and name in self._parameters else self.law.store
            return store(value)
        how = self.law.int8
        if name in self._matrix_axis:
            axis = self._matrix_axis[name] if how.per_channel else None
            return weight_grid(value, axis, power_of_two=how.power_of_two)(value)
        if not how.everything or max(value.shape, default=1) == value.size:
            return value  # biases and parameters of a channel are wide
        grid = grid_of_range(float(value.min()), float(value.max()), power_of_two=how.power_of_two)
        return value if grid is None else grid(value)

    def _grids(self, ranges: Ranges) -> dict[str, Grid]:
        how = self.law.int8
        assert how is not None
        found: dict[str, Grid] = {}
        for name, (low, high) in ranges.items():
            node = self.net.producer.get(name)
            if node is not None and node.op_type in MOVES and node.input[0] in found:
                found[name] = found[node.input[0]]
            elif (grid := grid_of_range(low, high, power_of_two=how.power_of_two)) is not None:
                found[name] = grid
        return found

    # ---- faults ----
    def _wrong(self, fault: Fault, node: onnx.NodeProto, values: Mapping[str, Array]) -> Array:
        read = self._read(node, values)
        data = values.get(node.input[0]) if node.input else None
        slot = _BIAS_INPUT.get(node.op_type, len(node.input))
        bias = self.weights.get(node.input[slot]) if slot < len(node.input) else None
        older = list(values.values())[: list(values).index(fault.tensor)]
        stale = [v for v in older if v.dtype == np.float32 and v is not data]
        output = [name for name in node.output if name].index(fault.tensor)

        def again(changed: onnx.NodeProto, changes: Mapping[str, Array]) -> Array:
            return np.asarray(self.net.run(changed, {**read, **changes}, cached=False)[output])

        site = Site(values[fault.tensor], node, self.net.opset, read, data, bias, stale[-1] if stale else None, again)
        with np.errstate(all="ignore"):
            wrong = plant(fault.kind, site)
        if wrong is None:
            raise ValueError(f"{fault.kind} makes no sense at {fault.tensor} ({node.op_type}, {site.value.shape})")
        return self._stored(fault.tensor, wrong)

    # ---- the chip's own arithmetic ----
    def _own_kernel(self, node: onnx.NodeProto, read: Mapping[str, Array]) -> Array | None:
        """The node by the chip's own arithmetic; None where its law has nothing special for this operator."""
        if node.domain not in ("", "ai.onnx") or not node.input:
            return None
        x = [read.get(name) if name else None for name in node.input]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if x[0] is None or any(v is not None and v.dtype != np.float32 for v in x):
            return None
        if self.law.tables is not None:
            before_13 = self.net.opset < 13 and attributes.get("axis", 1) not in (-1, x[0].ndim - 1)
            return None if node.op_type == "Softmax" and before_13 else self.law.tables.look_up(node.op_type, x[0], attributes)
        if node.op_type == "Conv" and x[1] is not None and x[0].ndim == 4 and attributes.get("auto_pad", b"NOTSET") == b"NOTSET":
            bias = x[2] if len(x) > 2 else None
            if not self._affordable(x[0].size * int(np.prod(x[1].shape[2:])), len(x[1])):
                return None
            if self.law.dot is not None:
                return kernels.conv(x[0], x[1], bias, attributes, self.law.dot)
            if self.law.winograd and _suits_winograd(x[1], attributes):
                return kernels.conv_winograd(x[0], x[1], bias, tuple(attributes.get("pads", (0, 0, 0, 0))))
            return None
        if self.law.dot is not None and node.op_type in ("MatMul", "Gemm") and all(v is not None for v in x[:2]):
            return _product(node.op_type, [v for v in x if v is not None], attributes, self.law.dot, self._affordable)
        return None

    @staticmethod
    def _affordable(elements: int, columns: int) -> bool:
        return elements <= _MOST_ELEMENTS and elements * columns <= _MOST_PRODUCTS


def _weights_of(node: onnx.NodeProto, opset: int) -> list[tuple[str, int | None]]:
    """Weights of a matrix product with their output channel axis (None: no such axis)."""
    if node.op_type in _RECURRENT:
        return [(name, None) for name in node.input[1:3]]
    if node.op_type not in MATRIX:
        return []
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    grouped = any(a.name == "group" and a.i > 1 for a in node.attribute)
    axis = {"Conv": 0, "ConvTranspose": None if grouped else 1, "Gemm": 0 if transposed else 1, "MatMul": -1}[node.op_type]
    return [(name, axis) for name in node.input[:2]]


def _product(op: str, x: Sequence[Array], attributes: Mapping[str, Any], dot: kernels.Dot, affordable: Any) -> Array | None:
    if min(x[0].ndim, x[1].ndim) < 2:
        return None
    a = x[0].T if attributes.get("transA") else x[0]
    b = x[1].T if attributes.get("transB") else x[1]
    if not affordable(a.size, b.shape[-1]):
        return None
    y = dot(a, b)
    if op == "MatMul":
        return y
    y = y * np.float32(attributes.get("alpha", 1.0))
    return y + x[2] * np.float32(attributes.get("beta", 1.0)) if len(x) > 2 else y


def _suits_winograd(w: Array, attributes: Mapping[str, Any]) -> bool:
    plain = all(set(attributes.get(name, (1,))) == {1} for name in ("strides", "dilations"))
    return w.shape[2:] == (3, 3) and plain and attributes.get("group", 1) == 1


def ranges_of(net: Net, samples: Sequence[Mapping[str, Array]]) -> dict[str, tuple[float, float]]:
    """Lowest and highest finite float32 value of each input and node output over the samples, in the order of the graph."""
    found: dict[str, tuple[float, float]] = {}
    for inputs in samples:
        for name, value in {**inputs, **net.golden(inputs)}.items():
            if value.dtype == np.float32 and (finite := value[np.isfinite(value)]).size:
                low, high = found.get(name, (np.inf, -np.inf))
                found[name] = (min(low, float(finite.min())), max(high, float(finite.max())))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 with one line where something is wrong with what was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path, help=".npz with the graph inputs by name")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the dump")
    parser.add_argument("--precision", choices=list(LAWS), default="fp16")
    parser.add_argument("--law", default="", help="; ".join(f"{p}: {', '.join(laws)}" for p, laws in LAWS.items()))
    parser.add_argument("--calibration", type=Path, nargs="+", help="int8: .npz files to take ranges from (default: INPUTS)")
    parser.add_argument("--fault", metavar="KIND@TENSOR", help=", ".join(KINDS))
    parser.add_argument("--density", type=float, default=1.0, help="share of the tensors that the dump holds")
    parser.add_argument("--form", choices=list(chip_dumps.FORMS), default="npy", help="how the dump is written")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        net = Net(onnx.load(given.model))
        inputs = _inputs(given.inputs, net)
        fault = _fault(given.fault, net) if given.fault else None
        int8 = given.precision == "int8"
        ranges = ranges_of(net, [_inputs(path, net) for path in given.calibration or [given.inputs]]) if int8 else None
        chip = Chip(net, given.precision, given.law, given.seed, ranges)
        values = chip.run(inputs, fault)
    except (OSError, KeyError, ValueError) as trouble:
        print(f"fake_chip: {trouble}", file=sys.stderr)
        return 2
    held = chip_dumps.kept(net, given.density)
    chip_dumps.write({name: values[name] for name in held}, given.out, given.form, given.precision, chip.grids)
    print(f"{len(held)} of {len(net.tensors)} tensors in {given.out}" + (f", {given.fault} planted" if fault else ", no fault"))
    return 0


def _inputs(path: Path, net: Net) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in net.inputs}


def _fault(text: str, net: Net) -> Fault:
    kind, _, tensor = text.partition("@")
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    if tensor not in net.producer:
        raise ValueError(f"no node makes {tensor!r}")
    return Fault(kind, tensor)


if __name__ == "__main__":
    sys.exit(main())
