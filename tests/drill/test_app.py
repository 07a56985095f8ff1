"""The app on a real fault, driven by keys at 80 columns and 24 lines: what matters is on the screen, and the screen never waits."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path

import pytest
from drill_cases import CULPRIT, POOL, result_of
from textual.pilot import Pilot
from textual.widgets import Input

from bisect_align.cli.reopen import options_of
from bisect_align.drill.app import DrillApp
from bisect_align.drill.dialogs import Asking, Reading
from bisect_align.drill.saved import FILE
from bisect_align.drill.start import ready
from bisect_align.result.result import State

SMALL = (80, 24)
Play = Callable[[DrillApp, "Pilot[None]"], Awaitable[None]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return result_of(POOL, tmp_path_factory.mktemp("app") / "out")


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "result"))


def drive(folder: Path, play: Play, size: tuple[int, int] = SMALL) -> DrillApp:
    app = DrillApp(ready(folder, options_of))

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            await play(app, pilot)

    asyncio.run(run())
    return app


async def settle(app: DrillApp, pilot: Pilot[None]) -> None:
    """Until nothing is at work any more."""
    await pilot.pause()
    for _ in range(500):
        if not app.busy:
            break
        await pilot.pause(0.02)
    await pilot.pause()
    await pilot.pause()


async def press(app: DrillApp, pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settle(app, pilot)


def screen(app: DrillApp) -> list[str]:
    """The lines of the screen as text."""
    lines: dict[float, dict[float, str]] = {}
    for x, y, text in re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', app.export_screenshot()):
        lines.setdefault(float(y), {})[float(x)] = unescape(text).replace("\xa0", " ")
    return ["".join(part for _, part in sorted(line.items())) for _, line in sorted(lines.items())]


def shown(app: DrillApp) -> str:
    return "\n".join(screen(app))


def test_from_the_verdict_to_the_worst_element_and_a_case(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        text = shown(app)
        for word in ("FAULT", "culprit 1", CULPRIT, "/r2/Relu_output_0", "AveragePool", "/c3/Conv_output_0", "Quit"):
            assert word in text
        await press(app, pilot, "4")
        for word in ("blamed", "1 fed with", "2 gave", "3 noise", "4 read by"):
            assert word in shown(app)
        await press(app, pilot, "3")
        for word in ("error [0, 7, :, :]", "[0,7,9,9]", "2.042", "3.404", "rms error along axis 2", "equal", "1.362*"):
            assert word in shown(app)
        await press(app, pilot, "e")
        assert isinstance(app.screen, Reading)
        assert "shows the failure" in shown(app)

    drive(folder, play)
    assert len(list(folder.rglob("repro.py"))) == 1


@pytest.mark.parametrize("view", ["1", "2", "3", "4"])
@pytest.mark.parametrize("size", [SMALL, (60, 20), (140, 50)])
def test_the_frame_is_always_there(view: str, size: tuple[int, int], folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, view)
        lines = screen(app)
        assert "FAULT" in lines[0] + lines[1]
        assert "AveragePool" in shown(app)
        assert "Up" in lines[-1]
        assert max(map(len, lines)) <= size[0] + 1

    drive(folder, play, size)


def test_moving_by_keys_by_rows_and_by_enter(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "u")
        assert app.position.tensor == "/r2/Relu_output_0"
        await press(app, pilot, "d", "d")
        assert app.position.tensor in ("/c3/Conv_output_0", "/res3/Add_output_0")
        await press(app, pilot, "backspace", "f")
        assert app.position.tensor == CULPRIT
        await press(app, pilot, "up", "enter")
        assert app.position.tensor == "/r2/Relu_output_0"
        await press(app, pilot, "2", "down", "enter")
        assert app.position.tensor == CULPRIT
        await press(app, pilot, "w")
        assert "0.171" in shown(app)

    drive(folder, play)


def test_the_table_is_filtered_and_sorted(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "slash", *"bad")
        assert app.position.query == "bad"
        assert "✓ good" not in shown(app)
        await press(app, pilot, "enter", "escape")
        assert "✓ good" in shown(app)
        await press(app, pilot, "s")
        assert "by error" in shown(app)

    drive(folder, play)


def test_a_filter_that_is_kept_stands_in_its_box(folder: Path) -> None:
    async def type_it(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "slash", *"bad")

    async def again(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2")
        assert app.query_one("#filter", Input).value == app.position.query == "bad"
        await press(app, pilot, "escape")
        assert app.query_one("#filter", Input).value == app.position.query == ""

    drive(folder, type_it)
    drive(folder, again)
    assert drive(folder, _nothing).position.query == ""


def test_a_long_table_is_a_window_that_moves_with_the_cursor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bisect_align.drill.table.WINDOW", 5)

    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "2")
        await pilot.press(*["down"] * 25)
        await press(app, pilot, "enter")
        assert app.position.tensor == "logits"
        assert "20 of 20" in shown(app)
        await pilot.press(*["up"] * 25)
        await press(app, pilot, "enter")
        assert app.position.tensor == "/c1/Conv_output_0"

    drive(folder, play)


def test_the_keys_at_the_bottom_are_those_of_the_view(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        for key, said in (("3", "next slice"), ("4", "arrows scroll"), ("2", "/ filters"), ("1", ": takes a command")):
            await press(app, pilot, key)
            assert said in shown(app)
            assert ("next slice" in shown(app)) == (key == "3")

    drive(folder, play)


def test_values_are_stepped_through(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "3", "left", "up")
        assert app.position.element == (0, 7, 8, 8)
        await press(app, pilot, "left_square_bracket")
        assert "[0, 6, :, :]" in shown(app)
        await press(app, pilot, "right_square_bracket", "v")
        assert "target [0, 7, :, :]" in shown(app)
        await press(app, pilot, "t")
        assert "[0, :, 8, :]" in shown(app)
        await press(app, pilot, "w")
        assert app.position.element == (0, 7, 9, 9)

    drive(folder, play)


def test_a_cut_is_made_with_two_presses(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "colon", *"go logits", "enter", "c")
        assert app.position.anchor == "logits"
        await press(app, pilot, "colon", *"go r1", "enter", "c")
        assert isinstance(app.screen, Reading)
        assert app.position.tensor == CULPRIT
        assert app.position.anchor == ""

    drive(folder, play)


def test_a_mark_by_hand_searches_again_and_is_kept(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "g")
        assert isinstance(app.screen, Reading)
        await press(app, pilot, "escape")
        assert app.position.marks == {CULPRIT: State.GOOD}

    drive(folder, play)
    assert (folder / FILE).is_file()
    again = drive(folder, play=_nothing)
    assert again.position.marks == {CULPRIT: State.GOOD}


async def _nothing(app: DrillApp, pilot: Pilot[None]) -> None:
    await pilot.pause()


def test_trouble_is_a_line_and_the_app_goes_on(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "colon", *"dance", "enter")
        assert "no command 'dance'" in shown(app)
        await press(app, pilot, "colon")
        assert isinstance(app.screen, Asking)
        await press(app, pilot, "escape", "minus")
        assert "narrow" in shown(app)
        await press(app, pilot, "y")
        assert "culprit 1 of 1" in shown(app)

    drive(folder, play)


def test_help_and_pictures(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        await press(app, pilot, "question_mark")
        assert "Ctrl+P" in shown(app)
        await press(app, pilot, "escape", "x")
        assert "written" in shown(app)

    drive(folder, play)
    assert (folder / "drill-graph.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_palette_holds_the_commands(folder: Path) -> None:
    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        found = {command.title for command in app.get_system_commands(app.screen)}
        assert {"why", "next", "replay", "extract", "budget"} <= found
        assert not {"go", "cut", "mark"} & found

    drive(folder, play)


def test_long_work_leaves_the_screen_alive_and_can_be_broken_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    going, finished = threading.Event(), threading.Event()

    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        run = app.desk.values()
        compare = run.replay

        def slow(region: object, on: object, progress: object) -> object:
            going.set()
            finished.wait(20)
            return compare(region, on, progress)  # type: ignore[arg-type]

        monkeypatch.setattr(run, "replay", slow)
        await pilot.press("r")
        while not going.is_set():
            await pilot.pause(0.01)
        await pilot.press("2")
        await pilot.pause()
        assert "by topology" in shown(app)
        await pilot.press("r")
        await pilot.pause()
        assert "still at work" in shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert not app.busy
        finished.set()
        await press(app, pilot, "1")
        assert not isinstance(app.screen, Reading)
        await press(app, pilot, "y")
        assert isinstance(app.screen, Reading)

    drive(folder, play)


def test_without_its_dump_the_app_shows_what_the_result_holds(tmp_path: Path) -> None:
    case = tmp_path / "case"
    shutil.copytree(POOL, case)
    folder = result_of(case, tmp_path / "out")
    shutil.rmtree(case / "dump")

    async def play(app: DrillApp, pilot: Pilot[None]) -> None:
        assert "values cannot be had" in shown(app)
        assert "/c3/Conv_output_0" in shown(app)
        await press(app, pilot, "3")
        assert "no values" in shown(app)
        await press(app, pilot, "4")
        assert "2 gave" in shown(app)

    drive(folder, play)
