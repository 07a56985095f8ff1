"""A conviction whose error is no larger than noise over all elements says which figure convicts, and where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_results import fault
from tiny_target import convolutional, normal, one_element, run_target, write_dump, write_model

from bisect_align.report.terminal import text
from bisect_align.result.escape import visible
from bisect_align.result.result import Noise, Verdict
from bisect_align.result.words import convicting, count
from bisect_align.session.options import Options
from bisect_align.session.phrases import clearest
from bisect_align.session.places import place_of
from bisect_align.session.run import run

NET, IMAGE = convolutional(), {"x": normal(91, 1, 3, 10, 8)}


def test_one_wrong_element_is_named_where_noise_is_larger_over_all(tmp_path: Path) -> None:
    values = run_target(NET, IMAGE, "int8", {"n0": one_element(-0.28)})
    dump = write_dump(tmp_path / "dump.npz", values)
    result = run(Options(model=write_model(tmp_path, NET), target_dump=dump, inputs=write_dump(tmp_path / "in.npz", IMAGE)))
    assert result.verdict is Verdict.FAULT
    (culprit,) = result.culprits
    assert culprit.introduced.rel_l2 is not None
    assert culprit.introduced.rel_l2 <= culprit.noise.expected
    told = f"{culprit.noise.score:.3g} times what int8 noise explains at its worst element ([0, 2, 0, 0])"
    assert told in result.summary
    assert told in " ".join(text(replace(result, summary="")).split())


@given(st.integers(0, 3), st.integers(0, 11), st.sampled_from(["slice", "peak"]))
def test_the_place_is_where_the_error_is(row: int, column: int, statistic: str) -> None:
    right = normal(3, 4, 12)
    target, sigma = right.copy(), np.full(right.shape, 0.1)
    if statistic == "peak":
        target[row, column] += 1
        assert place_of(statistic, right, target, sigma) == f"[{row}, {column}]"
    else:
        target[row] += 1
        assert place_of(statistic, right, target, sigma) == f"index {row} of axis 0"


@pytest.mark.parametrize(
    ("statistic", "said"),
    [
        ("slice: index 480 of axis 1", "2.4 times what int8 noise explains in its worst slice (index 480 of axis 1)"),
        ("offset", "2.4 times what int8 noise explains in its mean error"),
        ("rounding: one-sided rounding of the levels", "one-sided rounding of the levels"),
        ("", ""),
    ],
)
def test_each_statistic_has_its_words(statistic: str, said: str) -> None:
    hidden = replace(fault().culprits[0], noise=Noise(0.5, 2.4, "int8", 0.05, statistic))
    assert convicting(hidden) == said
    assert convicting(replace(hidden, noise=replace(hidden.noise, expected=0.1))) == ""


def test_one_is_singular() -> None:
    assert [count(1, "golden pass"), count(2, "golden pass"), count(0, "entry")] == [
        "1 golden pass",
        "2 golden passes",
        "0 entries",
    ]


def test_a_name_looks_the_same_in_the_sentence_and_in_the_proof(tmp_path: Path) -> None:
    strange = "it's\\a\x1bname"
    net = convolutional()
    for one in net.graph.node:
        for names in (one.input, one.output):
            names[:] = [strange if name == "n0" else name for name in names]
    dump = write_dump(tmp_path / "dump.npz", run_target(net, IMAGE, "fp32", {strange: one_element(2.0)}))
    result = run(Options(model=write_model(tmp_path, net), target_dump=dump, inputs=write_dump(tmp_path / "in.npz", IMAGE)))
    assert result.verdict is Verdict.FAULT
    assert f"'{visible(strange)}'" in result.summary
    assert text(result, 200).count(visible(strange)) >= 2


@pytest.mark.parametrize(
    ("scores", "named"),
    [
        ((2.4, 78.0), 1),
        ((2.4, 3.0, 40.0), 2),
        ((2.4, 20.0), None),
        ((78.0, 2.4), None),
        ((np.inf, 78.0), None),
        ((2.4, np.inf), None),
    ],
)
def test_the_clearest_culprit_is_named_where_the_first_is_far_from_it(scores: tuple[float, ...], named: int | None) -> None:
    (one,) = fault().culprits
    regions = [replace(one.region, output=f"t{k}") for k in range(len(scores))]
    culprits = tuple(
        replace(one, region=area, noise=replace(one.noise, score=score)) for area, score in zip(regions, scores, strict=True)
    )
    told = clearest(culprits)
    assert (told == "") == (named is None)
    assert named is None or f"'t{named}', score {scores[named]:.3g} against {scores[0]:.3g}" in told
