"""The terminal report: the verdict first, every part of the proof in it, and no name that steers the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import sample_results
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from bisect_align.report.figures import distributions, number, phrase
from bisect_align.report.terminal import report, text
from bisect_align.result.escape import visible
from bisect_align.result.repeats import Differing, Repeats
from bisect_align.result.result import Accumulation, Contributor, Figures, Kind, Result, Verdict

SNAPSHOT = Path(__file__).parent / "fault.txt"


def test_the_fault_report_is_the_stored_one() -> None:
    # After an intended change: write text(sample_results.fault()) to fault.txt and read the difference.
    assert text(sample_results.fault()) == SNAPSHOT.read_text(encoding="utf-8")


@pytest.mark.parametrize("result", [sample_results.fault(), sample_results.aligned(), sample_results.dump_suspect()])
def test_the_verdict_comes_first_and_lines_fit(result: Result) -> None:
    shown = text(result)
    assert result.verdict is not None
    assert shown.startswith(f"{result.verdict.upper()}: ")
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_an_interrupted_run_gives_no_verdict() -> None:
    assert text(sample_results.interrupted()).startswith("INCOMPLETE: ")


def test_every_part_of_the_proof_is_there() -> None:
    shown = " ".join(text(sample_results.fault()).split())
    for part in (
        "AveragePool /smooth/AveragePool, node 7",
        "auto_pad=SAME_UPPER",
        "/r2/Relu_output_0 GOOD",
        "score 6.82e+05",
        "4.8e-07",
        "read by /res3/Add_output_0",
        "18 of 20 matched (17 by exact, 1 by value)",
        "_extra.npy",
        "graph outputs logits",
        "14 tensors compared with the golden, 2 rounds, 2 golden passes, 3 replays",
        "Not judged by replay",
        "1 tensor, after the first conviction: logits",
        "2 tensors are not in the dump",
        "Read the attributes",
    ):
        assert part in shown


def test_what_has_no_reason_leaves_no_comma() -> None:
    fault = sample_results.fault()
    bare = replace(
        fault,
        suspects=tuple(replace(one, reason="") for one in fault.suspects),
        not_judged=tuple(replace(one, reason="") for one in fault.not_judged),
    )
    shown = text(bare, width=200)
    assert "Conv -> /c5/Conv_output_0: score 1.4, relative L2 0.164 (noise explains 1e-07)\n" in shown
    assert "1 tensor: logits" in shown


def test_colour_adds_no_word() -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(report(sample_results.fault()))
    assert isinstance(console.file, StringIO)
    coloured = console.file.getvalue()
    assert "\x1b[" in coloured
    plain = "".join(part.partition("m")[2] if at else part for at, part in enumerate(coloured.split("\x1b[")))
    assert plain.split() == text(sample_results.fault()).split()


@pytest.mark.parametrize(
    "name", ["/a/[bold]b[/bold]", "[/]", "x\x1b[31my", "a\nb", "[link=http://x]y[/link]", "\u202eevil", ":smile:"]
)
def test_names_of_strangers_are_shown_as_they_are(name: str) -> None:
    shown = text(sample_results.fault(name), width=200)
    assert f"AveragePool {visible(name)}, node 7" in shown


@settings(max_examples=60, deadline=None)
@given(sample_results.anything(text=st.text(st.characters(codec=None), max_size=8)), st.sampled_from([40, 80, 120]))
def test_any_result_has_a_report_without_control_characters(result: Result, width: int) -> None:
    for line in text(result, width).split("\n"):
        assert visible(line) == line


def test_many_culprits_stay_readable() -> None:
    one = sample_results.fault().culprits[0]
    shown = text(replace(sample_results.fault(), culprits=(one,) * 40))
    assert "Culprit 1 of 40" in shown
    assert "and 17 more (see result.json)" in shown
    assert len(shown.splitlines()) < 150


def test_a_wrong_shape_has_no_figures_and_still_a_report() -> None:
    one = replace(sample_results.fault().culprits[0], kind=Kind.WRONG_SHAPE, introduced=Figures(), accumulated=None)
    shown = text(replace(sample_results.fault(), culprits=(one,), verdict=Verdict.FAULT))
    assert "Culprit 1 of 1: wrong-shape" in shown


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "-"), (0.0, "0"), (1.0, "1"), (0.99995, "0.99995"), (1e-7, "1e-07"), (float("nan"), "nan")]
)
def test_numbers(value: float | None, expected: str) -> None:
    assert number(value) == expected


def test_phrases() -> None:
    assert phrase(Figures(elements=3, exact=True)) == "equal"
    assert phrase(Figures()) == "not comparable element by element"
    assert "2 new NaN" in phrase(Figures(elements=3, nan_target=3, nan_golden=1))


def test_a_histogram_too_coarse_to_see_a_difference_says_how_coarse() -> None:
    off = Figures(elements=10, kl=0.01, histogram=0.0)
    assert distributions(off) == "KL 0.01, histogram distance 0 (3 bins)"
    assert distributions(replace(off, exact=True)) == "KL 0.01, histogram distance 0"


def test_equal_culprits_are_shown_once() -> None:
    one = sample_results.fault().culprits[0]
    names = [f"/layer{k}/AveragePool_output_0" for k in range(17)]
    culprits = [replace(one, region=replace(one.region, output=name), same_as=(names[0],)) for name in names]
    culprits[0] = replace(culprits[0], same_as=tuple(names[1:]))
    shown = " ".join(text(replace(sample_results.fault(), culprits=tuple(culprits))).split())
    assert "Culprit 1 of 17" in shown
    assert "Culprit 2 of 17" not in shown
    assert "17 × AveragePool(auto_pad=SAME_UPPER" in shown
    assert "/layer5/AveragePool_output_0 and 11 more" in shown
    assert "/layer6/" not in shown


def test_what_an_error_is_made_of() -> None:
    region = sample_results.fault().suspects[0].region
    parts = (Contributor(region, 0.002, 0.01, 0.01), Contributor(region, 0.001, 0.03, 0.004))
    result = replace(sample_results.aligned(), accumulation=Accumulation("logits", 0.04, "/c5/Conv_output_0", parts, 12, 90))
    shown = " ".join(text(result, 120).split())
    for part in (
        "logits: relative L2 0.04",
        "crosses at /c5/Conv_output_0",
        "introduced 0.002",
        "as well by 0.004",
        "12 largest of 90",
    ):
        assert part in shown


def test_what_differs_between_runs() -> None:
    some = tuple(Differing(f"{k}.npy", f"t{k}", 1, 3, 10, 0.5, 0.1) for k in range(8))
    result = replace(
        sample_results.aligned(), repeats=Repeats(("again",), 20, some, "t0", "not compared", {"9.npy": "not in again"})
    )
    shown = " ".join(text(result, 120).split())
    for part in ("20 tensors compared bit for bit, 8 differ; not compared: 9.npy", "begins at t0", "max abs 0.5", "and 3 more"):
        assert part in shown
