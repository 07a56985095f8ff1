"""The precision of a run is read from its dump, and faults do not change what is read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tiny_target import Fault, Values, bench_of, convolutional, mixed, model_of, node, normal, run_target, scaled

from bisect_align.judgement.inference import Inferred, infer
from bisect_align.judgement.judge import Judge, sample
from bisect_align.judgement.precision import LADDER, PRECISIONS, Precision

Array = NDArray[np.float32]
NET = mixed(6)
INPUTS = {"x": normal(21, 8, 24)}
RUNS = ["fp32", "fp16", "bf16", "int8"]


def inferred(
    model: onnx.ModelProto, inputs: Mapping[str, Array], target: Mapping[str, Array], candidates: tuple[Precision, ...] = LADDER
) -> Inferred:
    bench = bench_of(model, inputs)
    tensors = tuple(t for t in bench.graph.tensors if t in target)
    judges: dict[str, Judge] = {}

    def judge_at(precision: Precision) -> Judge:
        return judges.setdefault(precision.name, Judge(bench, Values(target), tensors, precision))

    return infer(judge_at, tensors, candidates)


def of_run(precision: str, faults: Mapping[str, Fault] = {}, seed: int = 0) -> Inferred:
    return inferred(NET, INPUTS, run_target(NET, INPUTS, precision, faults, seed=seed))


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("seed", range(2))
def test_the_precision_of_a_healthy_run(precision: str, seed: int) -> None:
    got = of_run(precision, seed=seed)
    assert (got.precision.name, got.fitted) == (precision, True)
    assert got.evidence


@pytest.mark.parametrize("precision", RUNS)
def test_of_a_small_convolutional_run(precision: str) -> None:
    model, inputs = convolutional(), {"x": normal(22, 1, 3, 10, 8)}
    assert inferred(model, inputs, run_target(model, inputs, precision)).precision.name == precision


def test_equal_bits_are_the_finest_precision() -> None:
    assert of_run("exact").precision is LADDER[0]


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("tensor", ["m0", "b2", "t5"])
def test_one_fault_does_not_change_it(precision: str, tensor: str) -> None:
    assert of_run(precision, {tensor: scaled(1.5)}).precision.name == precision


@pytest.mark.parametrize("precision", RUNS)
@pytest.mark.parametrize("kind", ["t", "b", "g"])
def test_a_fault_that_hits_every_operator_of_one_class_does_not_change_it(precision: str, kind: str) -> None:
    """Every Tanh (every Add, every Mul) is wrong: the matrix products still say what the format is."""
    got = of_run(precision, {f"{kind}{k}": scaled(1.5) for k in range(6)})
    assert got.precision.name == precision


def test_what_no_precision_explains_is_said_to_be_uncertain() -> None:
    faults = {f"{kind}{k}": scaled(-3.0) for kind in "mbtg" for k in range(6)}
    got = of_run("fp16", faults)
    assert not got.fitted
    assert got.evidence


def test_a_run_that_computes_nothing_says_so() -> None:
    model = model_of([node("Relu", "x", "a"), node("Transpose", "a", "b", perm=[1, 0])], {"x": (8, 24)})
    got = inferred(model, INPUTS, run_target(model, INPUTS))
    assert got.precision is LADDER[0]
    assert "floating point" in got.evidence


def test_grey_levels_of_an_image_do_not_make_a_run_int8() -> None:
    """What stands above the first computation lies on the grid of its input in any run."""
    model = model_of(
        [
            node("Reshape", "x s", "a"),
            node("Relu", "a", "b"),
            node("MaxPool", "b", "c", kernel_shape=[2, 2]),
            node("Conv", "c w", "d"),
            node("Sigmoid", "d", "e"),
        ],
        {"x": (64, 3)},
        weights={"s": np.array([1, 3, 8, 8]), "w": normal(1, 4, 3, 3, 3)},
    )
    inputs = {"x": np.random.default_rng(1).integers(0, 256, (64, 3)).astype(np.float32)}
    for precision in ("fp32", "fp16"):
        assert inferred(model, inputs, run_target(model, inputs, precision)).precision.name == precision


def test_whole_numbers_all_the_way_do_not_make_a_run_int8() -> None:
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("MatMul", "r v", "n"), node("Sub", "n r", "y")]
    weights = {name: np.round(normal(seed, 24, 24, scale=0.7)) for name, seed in (("w", 31), ("v", 32))}
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights=weights), {"x": np.round(normal(33, 8, 24))}
    got = inferred(model, inputs, run_target(model, inputs, "exact"))
    assert (got.precision.name, got.fitted) == ("fp32", True)


def test_coarse_matrix_products_are_heard_among_many_others() -> None:
    """Two of three, and the rest of the net computes in fp32: most of a family speaks for it."""
    nodes, x = [], "x"
    for k in range(3):
        nodes.append(node("MatMul", f"{x} w{k}", f"m{k}"))
        nodes += [
            node("Sigmoid", f"m{k}", f"t{k}a"),
            *(node("Tanh", f"t{k}{a}", f"t{k}{b}") for a, b in ("ab", "bc", "cd", "de")),
        ]
        x = f"t{k}e"
    weights = {f"w{k}": normal(40 + k, 24, 24, scale=0.3) for k in range(3)}
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights=weights), {"x": normal(43, 8, 24)}
    coarse: dict[str, Fault] = {f"m{k}": lambda y, k=k: y + 0.03 * y.std() * normal(k, *y.shape) for k in range(2)}
    got = inferred(model, inputs, run_target(model, inputs, "exact", coarse))
    assert got.precision.name == "int8" or not got.fitted


@pytest.mark.parametrize("off", [0, 1, 3, 4])
@pytest.mark.parametrize("op", ["MatMul", "Conv"])
def test_matrix_operators_are_heard_also_where_others_share_their_regions(op: str, off: int) -> None:
    """Tensor cores read tf32: products that nobody dumped are off by 3e-4, and all else computes in fp32."""
    shape, kernel = ((1, 6, 8, 8), (6, 6, 3, 3)) if op == "Conv" else ((8, 24), (24, 24))
    pads = {"pads": [1, 1, 1, 1]} if op == "Conv" else {}
    nodes, weights, x = [], {}, "x"
    for k in range(4):
        nodes += [node(op, f"{x} w{k}", f"m{k}", **pads), node("Mul", f"m{k} c", f"y{k}")]
        nodes += [node("Tanh", f"{a}{k}", f"{b}{k}") for a, b in ("ya", "ab", "bd")]
        weights[f"w{k}"], x = normal(50 + k, *kernel, scale=0.3), f"d{k}"
    model, inputs = model_of(nodes, {"x": shape}, weights={**weights, "c": np.array(1.3, np.float32)}), {"x": normal(54, *shape)}
    coarse: dict[str, Fault] = {f"m{k}": lambda y, k=k: y + 3e-4 * y.std() * normal(k, *y.shape) for k in range(off)}
    target = run_target(model, inputs, "exact", coarse)
    got = inferred(model, inputs, {n: v for n, v in target.items() if n[0] != "m"})
    assert (got.precision.name == "fp32" and got.fitted) == (off < 2)


def test_only_candidates_are_considered() -> None:
    target = run_target(NET, INPUTS, "int8")
    got = inferred(NET, INPUTS, target, tuple(PRECISIONS[p] for p in ("fp32", "fp16")))
    assert got.precision.name in ("fp32", "fp16")
    assert not got.fitted


def test_few_regions_that_only_int8_explains_are_not_certain() -> None:
    """So coarse a format explains nearly anything: a fault in a small dump must not pass for quantisation."""
    target = run_target(NET, INPUTS, "fp16", {"g1": scaled(1.01), "g3": scaled(1.01), "g5": scaled(0.99)})
    got = inferred(NET, INPUTS, {n: v for n, v in target.items() if n in ("x", "g1", "g3", "g5")})
    assert not (got.precision.name == "int8" and got.fitted)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_two_regions_name_a_half_precision_only_where_their_numbers_are_of_that_format(precision: str) -> None:
    """A fault of one in a hundred in a finer run looks like bf16; numbers that all have its few bits do not come by chance."""
    two = ("m0", "g1")
    healthy = run_target(NET, INPUTS, precision)
    got = inferred(NET, INPUTS, {n: v for n, v in healthy.items() if n in ("x", *two)})
    assert (got.precision.name, got.fitted) == (precision, True)
    faulty = run_target(NET, INPUTS, "fp32", {t: scaled(1.003 if precision == "bf16" else 1.0005) for t in two})
    got = inferred(NET, INPUTS, {n: v for n, v in faulty.items() if n in ("x", *two)})
    assert got.precision.name == "fp32" or not got.fitted


@pytest.mark.parametrize("size", [1, 2, 47, 48, 49, 500])
def test_a_sample_is_even_and_holds_both_ends(size: int) -> None:
    names = [str(i) for i in range(size)]
    got = sample(names, 48)
    assert len(got) == min(size, 48)
    assert (got[0], got[-1]) == (names[0], names[-1])
    assert got == sorted(got, key=int)
    assert len(set(got)) == len(got)


@pytest.mark.parametrize("heads", [5, 8])
def test_heads_of_a_coarser_trunk_are_no_single_fault(heads: int) -> None:
    """A healthy mixed run: the layers above computed in fp32, the undumped trunk and what reads it in fp16."""
    nodes, weights, x = [], {}, "x"
    for k in range(7):
        nodes += [node("MatMul", f"{x} w{k}", f"m{k}"), node("Tanh", f"m{k}", f"t{k}")]
        weights[f"w{k}"], x = normal(60 + k, 24, 24, scale=0.3), f"t{k}"
    nodes += [node("MatMul", f"{x} trunk_w", "trunk"), *(node("MatMul", f"trunk h{k}", f"y{k}") for k in range(heads))]
    weights |= {"trunk_w": normal(70, 24, 24, scale=0.3), **{f"h{k}": normal(71 + k, 24, 24, scale=0.3) for k in range(heads)}}
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights=weights), {"x": normal(59, 8, 24)}

    def half(y: Array) -> Array:
        return y.astype(np.float16).astype(np.float32)

    target = run_target(model, inputs, "exact", dict.fromkeys(("trunk", *(f"y{k}" for k in range(heads))), half))
    del target["trunk"]
    got = inferred(model, inputs, target)
    assert (got.precision.name, got.fitted) == ("fp16", True)


def test_a_fault_in_an_undumped_tensor_is_one_fault_however_many_read_it() -> None:
    nodes, weights, x = [], {}, "x"
    for k in range(7):
        nodes += [node("MatMul", f"{x} w{k}", f"m{k}"), node("Tanh", f"m{k}", f"t{k}")]
        weights[f"w{k}"], x = normal(80 + k, 24, 24, scale=0.3), f"t{k}"
    nodes += [node("Tanh", x, "trunk"), *(node("MatMul", f"trunk h{k}", f"y{k}") for k in range(5))]
    weights |= {f"h{k}": normal(90 + k, 24, 24, scale=0.3) for k in range(5)}
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights=weights), {"x": normal(79, 8, 24)}
    target = run_target(model, inputs, "fp16", {"trunk": scaled(1.5)})
    del target["trunk"]
    got = inferred(model, inputs, target)
    assert (got.precision.name, got.fitted) == ("fp16", True)


def test_one_matrix_product_alone_may_have_run_coarser() -> None:
    """What stands alone has no peers: an error that a coarser float format explains proves nothing."""
    nodes = [node("MatMul", "x w", "m"), *(node("Tanh", f"{a}", f"{b}") for a, b in zip("mabcd", "abcde", strict=True))]
    model, inputs = model_of(nodes, {"x": (8, 24)}, weights={"w": normal(90, 24, 24, scale=0.3)}), {"x": normal(91, 8, 24)}
    noisy: Fault = lambda y: y + 4e-4 * y.std() * normal(92, *y.shape)  # noqa: E731
    assert inferred(model, inputs, run_target(model, inputs, "exact", {"m": noisy})).precision.name != "fp32"
    assert inferred(model, inputs, run_target(model, inputs, "exact", {"m": scaled(1.5)})).precision.name == "fp32"
