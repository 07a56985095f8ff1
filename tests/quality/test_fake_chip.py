"""The fake chip keeps its own promises: deterministic, as exact as its precision, faults planted where they were asked for."""

from __future__ import annotations

from pathlib import Path

import chip_dumps
import chip_faults
import chip_kernels
import chip_laws
import chip_numbers
import fake_chip
import numpy as np
import pytest
import quality
import subjects

from bisect_align.dumps.catalogue import catalogue

ALL_LAWS = [(precision, law) for precision, laws in chip_laws.LAWS.items() for law in laws]
SUBJECTS = {s.name: s for s in subjects.small_subjects()}
WELL_CONDITIONED = [name for name in SUBJECTS if name not in ("brittle", "attention")]
# Relative L2 that one healthy node may introduce: a Winograd tile in float16 costs about three roundings, a truncated product in
# TF32 or bfloat16 is too small by up to two steps, int8 depends on how well a range is used.
CEILING = {"fp32": 1e-6, "tf32": 2.5e-3, "fp16": 1.5e-3, "bf16": 1.2e-2, "int8": 0.1}


@pytest.fixture(params=SUBJECTS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> quality.Bench:
    return quality.Bench(SUBJECTS[request.param], tmp_path)


def test_nets_have_the_promised_size(bench: quality.Bench) -> None:
    assert 8 <= len(bench.net.nodes) <= 16
    sizes = [value.size for value in bench.golden(0).values()]
    assert max(sizes) <= 5000
    assert float(np.median(sizes)) >= 64


@pytest.mark.parametrize(("precision", "law"), ALL_LAWS)
@pytest.mark.parametrize("name", WELL_CONDITIONED)
def test_healthy_noise_is_what_the_precision_allows(name: str, precision: str, law: str, tmp_path: Path) -> None:
    bench = quality.Bench(SUBJECTS[name], tmp_path)
    _, values = bench.healthy(precision, law, 0)
    assert list(values) == list(bench.net.tensors)
    for tensor in bench.net.tensors:
        introduced, signal = bench.introduced(tensor, frozenset(values), values, seed=0)
        assert introduced <= CEILING[precision] * signal, tensor


@pytest.mark.parametrize(("precision", "law"), ALL_LAWS)
def test_the_same_seed_gives_the_same_bits(precision: str, law: str, tmp_path: Path) -> None:
    bench = quality.Bench(SUBJECTS["mobile"], tmp_path)
    ranges = fake_chip.ranges_of(bench.net, [bench.inputs(7)])
    first, second = (fake_chip.Chip(bench.net, precision, law, 3, ranges).run(bench.inputs(0)) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    golden = bench.golden(0)
    assert any(not np.array_equal(first[name], golden[name]) for name in first)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
@pytest.mark.parametrize("kind", chip_faults.KINDS)
def test_a_fault_spares_what_stands_above_and_reaches_what_stands_below(kind: str, precision: str, tmp_path: Path) -> None:
    """At the first place of any net where the kind makes sense and changes something."""
    for name, subject in SUBJECTS.items():
        bench = quality.Bench(subject, tmp_path / name)
        chip, healthy = bench.healthy(precision, "", 1) if name not in ("brittle", "attention") else (None, {})
        for culprit in bench.net.tensors if chip is not None else ():
            try:
                reused = chip.run(bench.inputs(1), fake_chip.Fault(kind, culprit), healthy)
            except ValueError:
                continue
            if np.array_equal(reused[culprit], healthy[culprit]):
                continue
            below = {culprit}
            for node in bench.net.nodes:
                if below.intersection(bench.net.reads[id(node)]):
                    below.update(node.output)
            faulty = chip.run(bench.inputs(1), fake_chip.Fault(kind, culprit))
            changed = {tensor for tensor in healthy if not np.array_equal(healthy[tensor], faulty[tensor])}
            assert culprit in changed <= below
            assert all(np.array_equal(faulty[tensor], reused[tensor], equal_nan=True) for tensor in faulty)
            return
    pytest.fail(f"{kind} suits no place of any net")


def test_there_are_faults_of_twenty_kinds_and_more() -> None:
    assert len(chip_faults.KINDS) >= 20


def test_winograd_is_the_same_convolution() -> None:
    rng = np.random.default_rng(0)
    x, w, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 7, 9), (4, 3, 3, 3), (4,)))
    plain = chip_kernels.conv(x, w, bias, {"pads": (1, 0, 1, 2)}, chip_kernels.dot_float64)
    fast = chip_kernels.conv_winograd(x, w, bias, (1, 0, 1, 2))
    assert fast.shape == plain.shape
    assert np.abs(fast - plain).max() < 0.02


def test_stochastic_rounding_has_no_bias() -> None:
    x = np.full(20000, 1 + 0.3 * 2.0**-10, np.float32)
    y = chip_numbers.to_fp16_stochastic(x, np.random.default_rng(0))
    assert set(np.unique(y)) == {np.float32(1), np.float32(1 + 2.0**-10)}
    assert abs(float(np.mean(y - x, dtype=np.float64))) < 0.02 * 2.0**-10


@pytest.mark.parametrize(
    ("to", "bits", "nearest"),
    [
        (chip_numbers.to_bf16, 7, True),
        (chip_numbers.to_bf16_truncated, 7, False),
        (chip_numbers.to_tf32, 10, True),
        (chip_numbers.to_tf32_truncated, 10, False),
    ],
)
def test_short_floats_keep_their_bits(to: chip_laws.Store, bits: int, nearest: bool) -> None:
    x = np.random.default_rng(0).uniform(1, 2, 4000).astype(np.float32) * np.float32([1, -64])[:, None]
    y = to(x)
    step = 2.0**-bits * np.abs(x).min(axis=1, keepdims=True).round()
    assert y.dtype == np.float32
    assert np.array_equal(y / step, np.rint(y / step))
    assert np.abs(y - x).max() <= (0.5 if nearest else 1) * 64 * 2.0**-bits
    assert nearest or bool((np.abs(y) <= np.abs(x)).all())
    special = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    assert np.array_equal(to(special), special, equal_nan=True)


@pytest.mark.parametrize("power_of_two", [False, True])
def test_int8_grids_hold_their_range_and_zero(power_of_two: bool) -> None:
    grid = chip_numbers.grid_of_range(-1.3, 2.0, power_of_two=power_of_two)
    assert grid is not None
    x = np.linspace(-1.3, 2.0, 999).astype(np.float32)
    assert np.abs(grid(x) - x).max() <= 0.51 * float(grid.scale)
    assert grid(np.zeros(1, np.float32))[0] == 0
    assert len(np.unique(grid(x))) <= 256
    assert np.array_equal(grid(grid(x)), grid(x))
    assert not power_of_two or float(np.log2(grid.scale)).is_integer()
    assert grid(np.float32([9.0]))[0] == grid.values(np.int8(127))


def test_weights_have_a_step_for_each_channel() -> None:
    w = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32) * np.float32([[1], [10], [100]])
    grid = chip_numbers.weight_grid(w, 0)
    assert (np.abs(grid(w) - w).max(axis=1) <= 0.51 * np.abs(w).max(axis=1) / 127).all()
    assert np.abs(chip_numbers.weight_grid(w, None)(w)[0]).max() != np.abs(w[0]).max()


@pytest.mark.parametrize("precision", chip_laws.LAWS)
@pytest.mark.parametrize("form", chip_dumps.FORMS)
def test_every_form_of_a_dump_holds_what_the_chip_made(form: str, precision: str, tmp_path: Path) -> None:
    bench = quality.Bench(SUBJECTS["inception"], tmp_path)
    chip, values = bench.healthy(precision, "", 0)
    path = tmp_path / ("dump.npz" if form == "npz" else "dump")
    chip_dumps.write(values, path, form, precision, chip.grids)
    read = {entry.names[0]: entry for entry in catalogue(path).entries}
    assert read.keys() == values.keys()
    for name, value in values.items():
        loaded = read[name].load(None).astype(np.float32)
        turned = value.transpose(0, 2, 3, 1) if form == "nhwc" and value.ndim == 4 else value
        quant = read[name].quant
        real = loaded if quant is None else (loaded - quant.zero_point) * quant.scale
        assert np.allclose(real, turned, rtol=1e-6, atol=1e-6), name


def test_the_command_writes_a_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = quality.Bench(SUBJECTS["towers"], tmp_path)
    out = tmp_path / "dump"
    given = [str(bench.path), str(bench.inputs_file(0)), "-o", str(out)]
    assert fake_chip.main([*given, "--density", "0.5", "--fault", "nan@tanh_1"]) == 0
    assert {path.stem for path in out.iterdir()} == set(chip_dumps.kept(bench.net, 0.5))
    assert "sigmoid_13" in chip_dumps.kept(bench.net, 0.0)
    assert int(np.isnan(np.load(out / "tanh_1.npy")).sum()) == 2
    assert fake_chip.main([*given, "--precision", "int8"]) == 0
    assert len(np.unique(np.load(out / "gemm_0.npy"))) <= 256
    assert fake_chip.main([*given, "--fault", "nan@nowhere"]) == 2
    assert "no node makes 'nowhere'" in capsys.readouterr().err
