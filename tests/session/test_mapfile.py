"""A line of the map that cannot be obeyed is said, in a match and in a run; what is said names the entry, the tensor and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_target import convolutional, normal, run_target, write_dump, write_model

from bisect_align.session.match import match
from bisect_align.session.options import Options
from bisect_align.session.run import run

NET, IMAGE = convolutional(), {"x": normal(91, 1, 3, 10, 8)}


@pytest.fixture
def options(tmp_path: Path) -> Options:
    dump = write_dump(tmp_path / "dump.npz", run_target(NET, IMAGE, "fp32"))
    (tmp_path / "map.toml").write_text('[tensors]\n"p" = "c0"\n"n1" = "n1"\n')
    return Options(
        model=write_model(tmp_path, NET),
        target_dump=dump,
        inputs=write_dump(tmp_path / "in.npz", IMAGE),
        map=tmp_path / "map.toml",
    )


def test_a_line_that_cannot_be_obeyed_is_said(options: Options) -> None:
    for said in (match(options).notes, run(options).warnings):
        (line,) = [text for text in said if text.startswith("map: ")]
        assert "'p' is not 'c0': " in line
        assert "(1, 4, 1, 1)" in line
        assert "(1, 6, 10, 8)" in line


def test_lines_that_are_obeyed_are_not_spoken_of(options: Options) -> None:
    assert options.map is not None
    options.map.write_text('[tensors]\n"p" = "p"\n"n1" = "n1"\n')
    assert not any(text.startswith("map: ") for text in (*match(options).notes, *run(options).warnings))
