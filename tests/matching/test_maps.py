"""The user's map: what is read, and what is said where it is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_align.dumps.entry import Entry, Expect
from bisect_align.errors import MatchError
from bisect_align.matching.maps import check_map, parse_map


def unread(expect: Expect | None) -> NoReturn:
    raise AssertionError("a map reads no file")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4), st.booleans())
def test_json_maps_come_back(pairs: dict[str, str], nested: bool) -> None:
    if nested or "tensors" not in pairs:
        assert parse_map(json.dumps({"tensors": pairs} if nested else pairs), name="map.json") == pairs


@pytest.mark.parametrize("name", ["map.toml", "map"])
@pytest.mark.parametrize("head", ["[tensors]\n", "", "\ufeff[tensors]\r\n"])
def test_toml_maps(name: str, head: str) -> None:
    text = head + '"conv.1" = "/conv/Conv_output_0"\njunk = ""  # ignored\n'
    assert parse_map(text, name=name) == {"conv.1": "/conv/Conv_output_0", "junk": ""}


def test_an_entry_may_be_called_tensors() -> None:
    assert parse_map('{"tensors": "x", "b": "y"}', name="m.json") == {"tensors": "x", "b": "y"}


@pytest.mark.parametrize(
    ("text", "name", "where", "what"),
    [
        ('[tensors]\na = "x"\nb = \n', "map.toml", "map.toml:3", "not valid TOML"),
        ('[tensors]\na = "x"\na = "y"\n', "map.toml", "map.toml:3", "not valid TOML"),
        ('[tensors]\na = "x', "map.toml", "map.toml:2", "not valid TOML"),
        ('{"a": "x",\n "b": }', "map.json", "map.json:2", "not valid JSON"),
        ('{"a": "x",\n "a": "y"}', "map.json", "map.json:2", "twice"),
        ('{"tensors": [1]}', "map.json", "map.json:1", "no table"),
        ("[1]", "map.json", "map.json", "no table"),
        ('{"tensors": {"a": "x",\n "b": 3}}', "map.json", "map.json:2", "no text"),
        ('[tensors]\nx = "y"\nconv.weight = "y"\n', "map.toml", "map.toml:3", "dots in quotes"),
        ("[" * 100_000, "map.json", "map.json", "too deeply"),
    ],
)
def test_mistakes_say_where(text: str, name: str, where: str, what: str) -> None:
    with pytest.raises(MatchError, match=what) as caught:
        parse_map(text, name=name)
    assert caught.value.where == where


def test_unknown_names_offer_the_nearest() -> None:
    entries = [Entry("out/conv1.npy", ("conv1", "out/conv1"), Path("dump"), "npy", 4, reader=unread)]
    tensors = ["/conv1/Conv_output_0", "logits"]
    check_map({"out/conv1.npy": "logits", "conv1": "", "out/conv1": "/conv1/Conv_output_0"}, entries, tensors)
    with pytest.raises(MatchError, match=r"nearest: .*out/conv1\.npy"):
        check_map({"conv1.npy": "logits"}, entries, tensors)
    with pytest.raises(MatchError, match="nearest: /conv1/Conv_output_0"):
        check_map({"conv1": "conv1/Conv_output_0"}, entries, tensors)
    with pytest.raises(MatchError) as caught:
        check_map({"conv1": "qqqqqq"}, entries, tensors)
    assert caught.value.hint == "there is /conv1/Conv_output_0, logits"
