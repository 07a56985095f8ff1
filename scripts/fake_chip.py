"""A chip that is not there: runs an ONNX model node by node as hardware of a given precision would, with at most one fault.

    python scripts/fake_chip.py MODEL INPUTS -o DIR --precision fp16 --fault scale-1.1@TENSOR --density 0.5 --seed 0

INPUTS is an .npz with the graph inputs by name. DIR receives one .npy a tensor, named after the tensor (characters that no
file name can hold are replaced by `_`), for `bisect-align MODEL --inputs INPUTS --target-dump DIR`.

Healthy laws (--law). fp32: `split` (sums over K in four parts), `fma` (one accumulator of fused multiply-adds), `float64`
(wide, rounded once). fp16, all with float16 weights and tensors: `round` (float32 sums), `chunks` (float16 sums of chunks of
32), `table` (curves from 257 entries), `stochastic` (outputs rounded up or down by chance), `flush` (no subnormals),
`winograd` (3x3 convolutions by F(2x2, 3x3)). Noise depends on the seed and the tensor's name alone.
"""

from __future__ import annotations

import argparse
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import chip_kernels as kernels
import numpy as np
import onnx
import onnxruntime
from chip_faults import KINDS, Site, plant
from numpy.typing import NDArray
from onnx import numpy_helper

Array: TypeAlias = NDArray[Any]

LAWS: dict[str, tuple[str, ...]] = {
    "fp32": ("split", "fma", "float64"),
    "fp16": ("round", "chunks", "table", "stochastic", "flush", "winograd"),
}
_DOTS: dict[str, kernels.Dot] = {
    "split": kernels.dot_split,
    "fma": kernels.dot_fma,
    "float64": kernels.dot_float64,
    "chunks": kernels.dot_chunks16,
}
# Operators whose float32 result depends on the library: a polynomial, a reciprocal, an order of summation.
_CURVES = ("Sigmoid", "Tanh", "Erf", "Exp", "Log", "Softmax", "Gelu", "Sqrt", "Div", "Pow", "Reciprocal")
_SUMS = ("ReduceMean", "ReduceSum", "AveragePool", "GlobalAveragePool", "ConvTranspose", "LSTM", "GRU")
_NORMS = ("LayerNormalization", "BatchNormalization", "InstanceNormalization")
_INEXACT = frozenset(_CURVES + _SUMS + _NORMS)
_BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2, "BatchNormalization": 2, "LayerNormalization": 2}


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of chip_faults.KINDS, planted at the node output `tensor` and read by everything below."""

    kind: str
    tensor: str


class Net:
    """A model as a list of nodes, each run by an ONNX Runtime session of its own (no optimisation, one thread, cached)."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.model = model
        self.constants: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            else:
                self.nodes.append(node)
        self.inputs = tuple(i.name for i in graph.input if i.name not in self.constants)
        self.outputs = tuple(o.name for o in graph.output)
        self.tensors = tuple(name for node in self.nodes for name in node.output if name)
        self.producer = {name: node for node in self.nodes for name in node.output if name}
        self.reads = {id(node): tuple(dict.fromkeys(_reads(node))) for node in self.nodes}
        self._sessions: dict[Any, onnxruntime.InferenceSession] = {}

    def run(self, node: onnx.NodeProto, values: Mapping[str, Array], weights: Mapping[str, Array], key: str) -> list[Array]:
        """Outputs of one node on the values given; key names the set of weights, for the session cache."""
        feeds = {name: values[name] for name in self.reads[id(node)] if name not in self.constants}
        signature = (key, node.output[0] or id(node), tuple(str(v.dtype) for v in feeds.values()))
        session = self._sessions.get(signature)
        if session is None:
            session = self._sessions[signature] = self._session(node, feeds, weights)
        return list(session.run(None, feeds))

    def exact(self, tensor: str, values: Mapping[str, Array]) -> Array:
        """The float32 value of a node output on the values given, with the model's own weights."""
        node = self.producer[tensor]
        made = self.run(node, values, self.constants, "exact")
        return made[[name for name in node.output if name].index(tensor)]

    def _session(
        self, node: onnx.NodeProto, feeds: Mapping[str, Array], weights: Mapping[str, Array]
    ) -> onnxruntime.InferenceSession:
        inputs = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
            for name, value in feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        used = [numpy_helper.from_array(weights[name], name) for name in self.reads[id(node)] if name in self.constants]
        graph = onnx.helper.make_graph([node], "node", inputs, outputs, used)
        model = onnx.helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        model.functions.extend(self.model.functions)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, those captured by its bodies too."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = {i.name for i in body.input} | {t.name for t in body.initializer}
            for inner in body.node:
                names += [name for name in _reads(inner) if name not in own]
                own |= set(inner.output)
            names += [o.name for o in body.output if o.name not in own]
    return names


class Chip:
    """Hardware of one precision, one noise law and one seed; deterministic."""

    def __init__(self, net: Net, precision: str, law: str | None = None, seed: int = 0) -> None:
        self.net = net
        self.precision = precision
        self.law = law or LAWS[precision][0]
        self.seed = seed
        if self.law not in LAWS[precision]:
            raise ValueError(f"{precision} knows the laws {', '.join(LAWS[precision])}, not {self.law!r}")
        self.weights = {name: self._stored(value) for name, value in net.constants.items()}

    def run(
        self, inputs: Mapping[str, Array], fault: Fault | None = None, healthy: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Every node output by name, float32 as a dump tool would write it (integers and bools as they are).

        healthy: the answer of a run without fault on the same inputs; what the fault does not reach is taken from it.
        Raises ValueError where the fault makes no sense.
        """
        values = {name: self._stored(np.asarray(value)) for name, value in inputs.items()}
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

    def _wrong(self, fault: Fault, node: onnx.NodeProto, values: Mapping[str, Array]) -> Array:
        data = values.get(node.input[0]) if node.input else None
        slot = _BIAS_INPUT.get(node.op_type, len(node.input))
        bias = self.weights.get(node.input[slot]) if slot < len(node.input) else None
        older = list(values.values())[: list(values).index(fault.tensor)]
        stale = [v for v in older if v.dtype == np.float32 and v is not data]
        site = Site(values[fault.tensor], node.op_type, data, bias, stale[-1] if stale else None)
        wrong = plant(fault.kind, site)
        if wrong is None:
            raise ValueError(f"{fault.kind} makes no sense at {fault.tensor} ({node.op_type}, {site.value.shape})")
        return self._stored(wrong)

    def _node(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> list[Array]:
        rng = np.random.default_rng([self.seed, zlib.crc32(node.output[0].encode())])
        with np.errstate(all="ignore"):  # a planted NaN goes through it
            special = self._own_kernel(node, values)
        results = [special] if special is not None else self.net.run(node, values, self.weights, self.precision + self.law)
        return [self._written(np.asarray(y), node.op_type, rng) for y in results]

    def _written(self, y: Array, op: str, rng: np.random.Generator) -> Array:
        if y.dtype != np.float32:
            return y
        if self.law == "stochastic":
            return kernels.to_fp16_stochastic(y, rng)
        if self.precision == "fp32" and self.law != "float64" and op in _INEXACT:
            return kernels.ulps(y, rng)
        return self._stored(y)

    def _stored(self, x: Array) -> Array:
        if x.dtype != np.float32 or self.precision == "fp32":
            return x
        return kernels.to_fp16_flushed(x) if self.law == "flush" else kernels.to_fp16(x)

    def _own_kernel(self, node: onnx.NodeProto, values: Mapping[str, Array]) -> Array | None:
        """The node by the chip's own arithmetic; None where its law has nothing special for this operator."""
        if node.domain not in ("", "ai.onnx"):
            return None
        x = [None if not name else self.weights[name] if name in self.weights else values[name] for name in node.input]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if any(v is not None and v.dtype != np.float32 for v in x) or not x or x[0] is None:
            return None
        if self.law == "table":
            return _by_table(node.op_type, x[0], attributes)
        if node.op_type == "Conv" and x[1] is not None and x[0].ndim == 4 and attributes.get("auto_pad", b"NOTSET") == b"NOTSET":
            bias = x[2] if len(x) > 2 else None
            if self.law in _DOTS:
                return kernels.conv(x[0], x[1], bias, attributes, _DOTS[self.law])
            if self.law == "winograd" and _suits_winograd(x[1], attributes):
                return kernels.conv_winograd(x[0], x[1], bias, tuple(attributes.get("pads", (0, 0, 0, 0))))
            return None
        if self.law in _DOTS and x[-1] is not None:
            return _product(node.op_type, [v for v in x if v is not None], attributes, _DOTS[self.law])
        return None


def _product(op: str, x: Sequence[Array], attributes: Mapping[str, Any], dot: kernels.Dot) -> Array | None:
    if op == "MatMul" and min(x[0].ndim, x[1].ndim) >= 2:
        return dot(x[0], x[1])
    if op != "Gemm":
        return None
    a = x[0].T if attributes.get("transA") else x[0]
    b = x[1].T if attributes.get("transB") else x[1]
    y = dot(a, b) * np.float32(attributes.get("alpha", 1.0))
    return y + x[2] * np.float32(attributes.get("beta", 1.0)) if len(x) > 2 else y


def _by_table(op: str, x: Array, attributes: Mapping[str, Any]) -> Array | None:
    if op == "Softmax":
        return kernels.softmax_table(x, attributes.get("axis", -1))
    return kernels.CURVES[op](x) if op in kernels.CURVES else None


def _suits_winograd(w: Array, attributes: Mapping[str, Any]) -> bool:
    plain = all(set(attributes.get(name, (1,))) == {1} for name in ("strides", "dilations"))
    return w.shape[2:] == (3, 3) and plain and attributes.get("group", 1) == 1


def kept(net: Net, density: float) -> tuple[str, ...]:
    """The tensors that a dump of this density (0 .. 1) holds: evenly spread in file order, graph outputs always."""
    chosen = (int((i + 1) * density + 1e-9) > int(i * density + 1e-9) for i in range(len(net.tensors)))
    return tuple(name for name, chose in zip(net.tensors, chosen, strict=True) if chose or name in net.outputs)


def write(values: Mapping[str, Array], folder: Path) -> None:
    """One .npy a tensor; a name that is already taken after cleaning gets a number."""
    folder.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for name, value in values.items():
        stem = clean = re.sub(r"[^\w.-]", "_", name)
        while stem.lower() in taken:
            stem = f"{clean}_{len(taken)}"
        taken.add(stem.lower())
        np.save(folder / f"{stem}.npy", value)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 2 with one line where something is wrong with what was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path, help=".npz with the graph inputs by name")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the dump")
    parser.add_argument("--precision", choices=sorted(LAWS), default="fp16")
    parser.add_argument("--law", help=f"fp32: {', '.join(LAWS['fp32'])}; fp16: {', '.join(LAWS['fp16'])}")
    parser.add_argument("--fault", metavar="KIND@TENSOR", help=", ".join(KINDS))
    parser.add_argument("--density", type=float, default=1.0, help="share of the tensors that the dump holds")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        net = Net(onnx.load(given.model))
        with np.load(given.inputs, allow_pickle=False) as archive:
            inputs = {name: archive[name] for name in net.inputs}
        fault = _fault(given.fault, net) if given.fault else None
        values = Chip(net, given.precision, given.law, given.seed).run(inputs, fault)
    except (OSError, KeyError, ValueError) as trouble:
        print(f"fake_chip: {trouble}", file=sys.stderr)
        return 2
    held = kept(net, given.density)
    write({name: values[name] for name in held}, given.out)
    print(f"{len(held)} of {len(net.tensors)} tensors in {given.out}" + (f", {given.fault} planted" if fault else ", no fault"))
    return 0


def _fault(text: str, net: Net) -> Fault:
    kind, _, tensor = text.partition("@")
    if kind not in KINDS:
        raise ValueError(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    if tensor not in net.producer:
        raise ValueError(f"no node makes {tensor!r}")
    return Fault(kind, tensor)


if __name__ == "__main__":
    sys.exit(main())
