"""The commands on a real fault: from the verdict to the worst element and a case that runs alone, in a pipe."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from drill_cases import BUGS, CULPRIT, POOL, command_of, result_of

from bisect_align.cli.main import main
from bisect_align.cli.reopen import options_of
from bisect_align.drill.commands import COMMANDS, execute, parse, plain
from bisect_align.drill.desk import Desk
from bisect_align.drill.navigation import Position
from bisect_align.drill.reader import interactive
from bisect_align.drill.saved import FILE
from bisect_align.drill.start import ready
from bisect_align.errors import BisectAlignError, UsageError
from bisect_align.result.result import State


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result_of(POOL, tmp_path_factory.mktemp("drill") / "out")


@pytest.fixture(scope="module")
def desk(folder: Path) -> Desk:
    return ready(folder, options_of).open()


@pytest.fixture
def fresh(folder: Path, tmp_path: Path) -> Path:
    """A copy of the result, to write beside."""
    return Path(shutil.copytree(folder, tmp_path / "result", ignore=shutil.ignore_patterns(FILE)))


HERE = Position(CULPRIT)


def said(line: str, desk: Desk, position: Position = HERE) -> str:
    return plain(execute(line, position, desk).text)


def test_why_gives_the_proof(desk: Desk) -> None:
    text = said("why", desk)
    for word in ("culprit 1 of 1", "AveragePool", "/r2/Relu_output_0", "convicted above 2", "border only", "padding counted"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("/r2/Relu_output_0", "GOOD.*equal"),
        ("/c3/Conv_output_0", "BAD.*inherits.*/smooth/AveragePool_output_0"),
        ("spec", "input.*float32"),
        ("/bn2/BatchNormalization_output_0", "not compared"),
    ],
)
def test_why_not_is_said_as_well(tensor: str, words: str, desk: Desk) -> None:
    assert re.search(words, said(f"why {tensor}", desk), re.DOTALL)


def test_steps_lead_up_and_down(desk: Desk) -> None:
    up = execute("up", HERE, desk)
    assert up.position.tensor == "/r2/Relu_output_0"
    assert execute("down", up.position, desk).position.tensor == CULPRIT
    assert execute("down /c3/Conv_output_0", HERE, desk).position.tensor == "/c3/Conv_output_0"
    with pytest.raises(UsageError, match="is not below"):
        execute("down logits", HERE, desk)
    assert execute("next", up.position, desk).position.tensor == CULPRIT
    assert execute("first", up.position, desk).position.tensor == CULPRIT
    assert execute("worst tensor", up.position, desk).position.tensor != up.position.tensor


def test_a_tensor_goes_by_its_node_or_by_a_piece_of_its_name(desk: Desk) -> None:
    assert desk.tensor("/smooth/AveragePool") == CULPRIT
    assert desk.tensor("smooth") == CULPRIT
    with pytest.raises(UsageError, match=r"is in \d+ names"):
        desk.tensor("Conv")
    with pytest.raises(UsageError, match="no tensor"):
        desk.tensor("nowhere at all")


def test_show_begins_at_the_worst_element(desk: Desk) -> None:
    text = said("show", desk)
    assert "[0,7,9,9]" in text
    assert "[0, 7, :, :]" in text
    assert "2.042" in text
    assert "3.404" in text
    assert said("show 0,2,:,: golden", desk) != said("show 0,2,:,: target", desk)
    assert execute("show 0,:,9,:", HERE, desk).position.element == (0, 7, 9, 9)
    assert execute("show [0,-1,0,0]", HERE, desk).position.element == (0, 7, 0, 0)
    for wrong in ("show 0,1", "show 0,99,0,0", "show :,:,:,0"):
        with pytest.raises(UsageError):
            execute(wrong, HERE, desk)


def test_worst_lists_elements_with_both_values(desk: Desk) -> None:
    done = execute("worst", HERE, desk)
    assert done.position.element == (0, 7, 9, 9)
    assert "equal" in said("worst", desk, Position("/r2/Relu_output_0"))


def test_replay_tells_the_guilty_region_from_one_that_inherits(desk: Desk) -> None:
    assert "noise does not explain" in said("replay", desk)
    assert "noise explains what" in said("replay target", desk, Position("/c3/Conv_output_0"))
    assert "accumulated error" in said("replay golden", desk)
    with pytest.raises(UsageError, match="no node"):
        execute("replay", Position("spec"), desk)


def test_a_widened_replay_reaches_over_the_culprit(desk: Desk) -> None:
    wider = execute("widen", Position("/c3/Conv_output_0"), desk).position
    assert "noise does not explain" in said("replay", desk, wider)


def test_a_cut_searches_between_two_tensors(desk: Desk) -> None:
    done = execute("cut /r1/Relu_output_0 logits", Position("logits"), desk)
    assert done.position.tensor == CULPRIT
    assert "crossing" in plain(done.text)
    with pytest.raises(UsageError, match="not computed from"):
        execute("cut logits /r1/Relu_output_0", HERE, desk)


def test_a_mark_searches_again(desk: Desk) -> None:
    done = execute(f"mark {CULPRIT} good", HERE, desk)
    assert done.position.marks == {CULPRIT: State.GOOD}
    assert done.position.tensor != CULPRIT
    assert "by hand" in plain(done.text)
    back = execute(f"mark {CULPRIT} none", done.position, desk)
    assert back.position.tensor == CULPRIT
    assert back.position.marks == {}


def test_states_that_the_run_did_not_need_are_found(desk: Desk) -> None:
    done = execute("mark /r2/Relu_output_0 bad", HERE, desk)
    assert done.position.learnt
    assert all(found.state is State.GOOD for found in done.position.learnt.values())
    assert done.position.tensor == "/r2/Relu_output_0"


def test_extract_writes_a_case_that_shows_the_failure(fresh: Path) -> None:
    desk = ready(fresh, options_of).open()
    text = said("extract", desk)
    assert "shows the failure" in text
    (script,) = fresh.rglob("repro.py")
    assert subprocess.run([sys.executable, str(script)], capture_output=True, check=False).returncode == 1
    here = fresh.parent / "mine"
    assert str(here) in said(f"extract {here}", desk, Position("/c3/Conv_output_0"))
    assert (here / "repro.py").is_file()


def test_a_folder_that_cannot_be_written_asks_for_another_by_the_drills_own_words(fresh: Path) -> None:
    (fresh.parent / "taken").write_text("a file")
    with pytest.raises(BisectAlignError) as raised:
        said(f"extract {fresh.parent / 'taken'}", ready(fresh, options_of).open())
    assert "extract DIR" in raised.value.hint
    assert "-o" not in raised.value.hint


def test_help_names_every_command_and_fits(desk: Desk) -> None:
    text = said("help", desk)
    assert all(re.search(rf"^{name}\b", text, re.MULTILINE) for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 78


def test_words_that_are_no_command(desk: Desk) -> None:
    assert parse("rep")[0] == "replay"
    assert parse('go "a b"') == ("go", ("a b",))
    for line in ("", "dance", "n", "why 'x", "first of all"):
        with pytest.raises(BisectAlignError):
            execute(line, HERE, desk)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"extract", "cut", "quit"}))
def test_every_command_keeps_its_feet_on_the_ground(name: str, desk: Desk) -> None:
    """Whatever stands behind it, a command answers or says one line."""
    for words in ("", "x", "Conv", "1,2", ":,:,:,:", "bad", "golden", "tensor", "'a b'", "logits good", "-1"):
        position = HERE
        with contextlib.suppress(BisectAlignError):
            position = execute(f"{name} {words}", HERE, desk).position
        assert desk.terrain.knows(position.tensor)


# --- the command line ---------------------------------------------------------------------------------------------------------
def test_commands_go_on_where_the_last_ones_ended(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", str(fresh), "--command", "up", "--command", "why"]) == 0
    assert "/r2/Relu_output_0" in capsys.readouterr().out
    assert json.loads((fresh / FILE).read_text())["position"]["tensor"] == "/r2/Relu_output_0"
    assert main(["drill", str(fresh / "result.json"), "-c", "down"]) == 0
    assert json.loads((fresh / FILE).read_text())["position"]["tensor"] == CULPRIT


def test_a_command_that_fails_ends_with_2_and_one_line(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", str(fresh), "-c", "up", "-c", "go nowhere"]) == 2
    shown = capsys.readouterr()
    assert len(shown.err.splitlines()) == 1
    assert json.loads((fresh / FILE).read_text())["position"]["tensor"] == "/r2/Relu_output_0"


def test_without_a_terminal_lines_are_read(fresh: Path) -> None:
    out = io.StringIO()
    assert interactive(ready(fresh, options_of), ["up\n", "\n", "nonsense\n", "why\n", "quit\n", "down\n"], out) == 2
    assert "error: no command 'nonsense'" in out.getvalue()
    assert json.loads((fresh / FILE).read_text())["position"]["tensor"] == "/r2/Relu_output_0"


def test_a_run_can_end_in_a_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("why\n"))
    assert main([*command_of(POOL, tmp_path / "out"), "--drill"]) == 1
    assert "4 read by" in capsys.readouterr().out


def test_the_state_of_another_result_is_said_and_not_used(fresh: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", str(fresh), "-c", "up"]) == 0
    text = (fresh / "result.json").read_text()
    (fresh / "result.json").write_text(text.replace('"total":', '"total" :'))
    capsys.readouterr()
    assert main(["drill", str(fresh), "-c", "why"]) == 0
    shown = capsys.readouterr().out
    assert "of another result" in shown
    assert "culprit 1 of 1" in shown


@pytest.mark.parametrize("gone", ["dump", "model.onnx"])
def test_what_is_gone_is_said_and_the_rest_is_shown(gone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "case"
    shutil.copytree(POOL, case)
    folder = result_of(case, tmp_path / "out")
    capsys.readouterr()
    (shutil.rmtree if gone == "dump" else Path.unlink)(case / gone)
    assert main(["drill", str(folder), "-c", "why", "-c", "worst", "-c", "up", "-c", "down"]) == 0
    shown = capsys.readouterr().out
    (note,) = [line for line in shown.splitlines() if line.startswith("note: values cannot be had: ")]
    assert gone in note
    assert "worst at [0, 7, 9, 9]" in shown
    assert main(["drill", str(folder), "-c", "show"]) == 2
    assert "no values can be had" in capsys.readouterr().err


@pytest.mark.parametrize("stranger", [CULPRIT, "/r1/Relu_output_0", "/res3/Add_output_0", "spec"])
def test_a_result_that_names_other_tensors_is_shown_as_it_is(
    stranger: str, fresh: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = fresh / "result.json"
    file.write_text(file.read_text().replace(f'"{stranger}"', '"edited"'))
    commands = [f"{name} {word}" for name in ("why", "go", "up", "down", "sort", "find") for word in ("", "edited", "error")]
    desk = ready(fresh, options_of).open()
    assert "'edited'" in desk.missing
    for line in (*commands, "next", "first", "worst tensor", "budget", "widen"):
        with contextlib.suppress(BisectAlignError):
            execute(line, ready(fresh, options_of).position, desk)
    assert main(["drill", str(fresh), "-c", "budget"]) == 0
    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: ")]
    assert "the model has no tensor 'edited'" in note
    assert main(["drill", str(fresh), "-c", "show"]) == 2


def test_who_read_the_wrong_value_is_known_without_the_model(folder: Path) -> None:
    terrain = ready(folder, options_of).closed.terrain
    by = terrain.culprits[CULPRIT].certificate.by
    assert by
    assert set(by) <= set(terrain.below(CULPRIT))


def test_a_result_without_a_tensor_or_none_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drill", str(tmp_path), "-c", "why"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_missing_app_library_is_one_line(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    for name in [name for name in sys.modules if name == "bisect_align.drill.app" or name.startswith("textual.")]:
        monkeypatch.delitem(sys.modules, name)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert main(["drill", str(fresh)]) == 2
    assert "pip install textual" in capsys.readouterr().err
    assert main(["drill", str(fresh), "-c", "why"]) == 0


@pytest.mark.parametrize(
    "case", ["ort-layernorm-cancellation-nan", "openvino-convtranspose-autopad-shape", "openvino-argmin-ties"]
)
def test_other_kinds_of_fault_can_be_walked(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = result_of(BUGS / case, tmp_path)
    capsys.readouterr()
    lines = ["why", "show", "replay", "budget", "up", "show", "down"]
    assert main(["drill", str(folder), *(word for line in lines for word in ("-c", line))]) == 0
    assert "culprit 1 of" in capsys.readouterr().out
