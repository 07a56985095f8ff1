"""result.json and tensors.csv: what is written can be read, fits its schema, and harms neither terminal nor spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import sample_results
from hypothesis import given, settings
from hypothesis import strategies as st

import bisect_align.result
from bisect_align.errors import OutputError, UsageError
from bisect_align.result import files
from bisect_align.result.escape import cell, visible
from bisect_align.result.result import Figures, Result, State, TensorRow
from bisect_align.result.schema import schema, schema_text
from bisect_align.result.table import COLUMNS, to_csv

VALIDATOR = jsonschema.Draft202012Validator(schema())
SHIPPED = Path(bisect_align.result.__file__).parent / "result.schema.json"


@settings(max_examples=40, deadline=None)
@given(sample_results.anything())
def test_a_result_comes_back_as_it_was(result: Result) -> None:
    data = files.to_json(result)
    assert repr(files.from_json(data)) == repr(result)  # repr: NaN equals NaN
    VALIDATOR.validate(json.loads(data))


@settings(max_examples=40, deadline=None)
@given(sample_results.anything(text=st.text(st.characters(codec=None), max_size=8)))
def test_strange_names_are_written_and_steer_nothing(result: Result) -> None:
    data = files.to_json(result).decode()
    VALIDATOR.validate(json.loads(data))
    assert visible(data.replace("\n", "")) == data.replace("\n", "")
    table = to_csv(result)
    assert visible(table.replace("\n", "")) == table.replace("\n", "")
    assert len(list(csv.reader(io.StringIO(table)))) == 1 + len(result.tensors)


def test_json_holds_no_bare_nan() -> None:
    row = TensorRow("t", 0, "n", "Add", State.BAD, accumulated=Figures(cosine=math.nan, max_abs=math.inf, psnr=-math.inf))
    figures = json.loads(files.to_json(replace(sample_results.aligned(), tensors=(row,))))["tensors"][0]["accumulated"]
    assert (figures["cosine"], figures["max_abs"], figures["psnr"], figures["mse"]) == ("nan", "inf", "-inf", None)


def test_the_shipped_schema_is_the_generated_one() -> None:
    assert SHIPPED.read_text(encoding="utf-8") == schema_text()
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("change", [{"verdict": "guilty"}, {"complete": "yes"}, {"schema": "other/1"}, {"summary": 3}])
def test_the_schema_refuses_what_is_no_result(change: dict[str, object]) -> None:
    document = json.loads(files.to_json(sample_results.fault()))
    VALIDATOR.validate(document)
    assert list(VALIDATOR.iter_errors({**document, **change}))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"\xff", b'{"schema": "bisect-align/result/9"}', b'{"schema": "bisect-align/result/1"}']
)
def test_what_is_no_result_is_refused_in_one_line(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        files.read(tmp_path)
    assert "result.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_write_then_read_then_write_again(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    for result in (sample_results.fault(), sample_results.aligned()):
        files.write(result, out)
        assert files.read(out) == files.read(out / "result.json") == result
    assert sorted(path.name for path in out.iterdir()) == ["result.json", "tensors.csv"]


@pytest.mark.parametrize("content", ["{}", '{"schema": "somebody else"}', "no json"])
def test_a_folder_of_another_hand_is_never_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(OutputError, match="something else"):
        files.write(sample_results.fault(), tmp_path)
    assert (tmp_path / "result.json").read_text() == content
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="no folder"):
        files.check(tmp_path / "file")


def test_a_write_that_fails_leaves_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(sample_results.fault(), tmp_path)

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        files.write(sample_results.aligned(), tmp_path)
    assert files.read(tmp_path) == sample_results.fault()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.json", "tensors.csv"]


def test_the_table_has_one_row_a_tensor_and_every_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(sample_results.fault()))))
    assert [row["name"] for row in rows] == [row.name for row in sample_results.fault().tensors]
    assert set(Figures.__dataclass_fields__) < set(COLUMNS)
    assert rows[1]["worst"] == "0:3:29:0"
    assert float(rows[1]["rel_l2"]) == sample_results.OFF.rel_l2
    assert rows[2]["cosine"] == ""


def test_numbers_stay_numbers_and_names_are_no_formulas() -> None:
    row = TensorRow("=HYPERLINK(1)", 0, "+n", "@op", State.BAD, entry="-1", accumulated=Figures(cosine=-0.5, psnr=-math.inf))
    (read,) = csv.DictReader(io.StringIO(to_csv(replace(sample_results.aligned(), tensors=(row,)))))
    assert (read["name"], read["node"], read["op"], read["entry"]) == ("'=HYPERLINK(1)", "'+n", "'@op", "'-1")
    assert (read["cosine"], read["psnr"]) == ("-0.5", "-inf")


@given(st.text(st.characters(codec=None)))
def test_visible_hides_nothing_and_changes_nothing_else(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert all(char.isprintable() or not char.isascii() for char in shown)
    if text.isascii() and text.isprintable():
        assert shown == text
    assert not cell(text).startswith(("=", "+", "-", "@", "\t", "\r"))


def test_escape_sequences_are_shown() -> None:
    assert visible("a\x1b[31mb\u202ec\x9b") == "a\\x1b[31mb\\u202ec\\x9b"
