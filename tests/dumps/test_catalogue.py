"""What stands in a folder: names, keys, roles, twins, samples, order; and what cannot be read is told, not fatal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bisect_align.dumps.catalogue import by_key, catalogue
from bisect_align.dumps.entry import Catalogue, Role
from bisect_align.errors import DumpError


def put(folder: Path, *places: str, value: float = 0.0) -> None:
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.full((2, 3), value, np.float32)
        if path.suffix == ".npy":
            np.save(path, array)
        elif path.suffix == ".txt":
            np.savetxt(path, array.ravel())
        else:
            path.write_bytes(array.tobytes())


def keys(found: Catalogue, role: Role = Role.TARGET) -> set[str]:
    return {entry.key for entry in found.entries if entry.role is role}


def test_names_of_nested_files(tmp_path: Path) -> None:
    put(tmp_path, "Result_0/conv/tensor_0.raw", "Result_0/relu/tensor_0.raw", "Result_0/a.b.1.raw")
    found = {entry.key: entry.names for entry in catalogue(tmp_path).entries}
    assert found["Result_0/conv/tensor_0.raw"] == ("conv/tensor_0", "tensor_0", "Result_0/conv/tensor_0")
    assert found["Result_0/a.b.1.raw"] == ("a.b.1", "Result_0/a.b.1")


def test_keys_of_containers(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", **{"/a/b": np.zeros(2), "c": np.zeros(2)})
    assert keys(catalogue(tmp_path)) == keys(catalogue(tmp_path / "all.npz")) == {"/a/b", "c"}
    put(tmp_path, "d.npy")
    found = catalogue(tmp_path)
    assert keys(found) == {"all.npz::/a/b", "all.npz::c", "d.npy"}
    assert {"all.npz::c", "c", "d.npy", "d"} <= by_key(found).keys()


def test_a_key_names_one_entry_even_where_names_repeat(tmp_path: Path) -> None:
    put(tmp_path, "a/x.npy", "b/x.npy")
    found = catalogue(tmp_path)
    assert "x" not in by_key(found)
    assert by_key(found)["a/x"].key == "a/x.npy"


def test_snapshot_with_reference_twins_map_and_logs(tmp_path: Path) -> None:
    for side in ("golden", "simulator"):
        put(tmp_path, f"{side}/_a_Conv.txt", f"{side}/npy/_a_Conv.npy", f"{side}/x.txt", f"{side}/npy/x.npy")
    (tmp_path / "map_name_to_file.txt").write_text("layer_name file_name\n-----\nx    x.txt\n/a/Conv   _a_Conv.txt\n")
    (tmp_path / "error_analysis.txt").write_text("# table\n")
    found = catalogue(tmp_path)
    assert keys(found) == {"simulator/npy/_a_Conv.npy", "simulator/npy/x.npy"}
    assert keys(found, Role.REFERENCE) == {"golden/npy/_a_Conv.npy", "golden/npy/x.npy"}
    entry = by_key(found)["simulator/npy/_a_Conv.npy"]
    assert entry.names[:2] == ("/a/Conv", "_a_Conv")
    assert entry.order is not None
    assert any("twins" in note for note in found.notes)
    assert any("golden/" in note for note in found.notes)


def test_a_reference_folder_alone_is_the_dump(tmp_path: Path) -> None:
    put(tmp_path, "golden/x.npy", "other/unrelated.npy")
    assert "golden/x.npy" in keys(catalogue(tmp_path))


def test_a_board_beside_a_simulator_is_the_target(tmp_path: Path) -> None:
    put(tmp_path, "golden/x.npy", "simulator/x.npy", "runtime/x.npy")
    assert keys(catalogue(tmp_path)) == {"runtime/x.npy"}


def test_a_broken_binary_leaves_its_text_twin(tmp_path: Path) -> None:
    put(tmp_path, "x.txt", "y.npy")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    found = catalogue(tmp_path)
    assert keys(found) == {"x.txt", "y.npy"}
    assert [problem.names for problem in found.problems] == [("x",)]


def test_desired_beside_actual_is_the_reference(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", a_actual=np.zeros(1), a_desired=np.zeros(1), b_desired=np.zeros(1))
    found = catalogue(tmp_path)
    assert keys(found) == {"a_actual", "b_desired"}
    assert keys(found, Role.REFERENCE) == {"a_desired"}


def test_node_inputs_with_time_stamps(tmp_path: Path) -> None:
    stamp = 1796042114887486
    put(tmp_path, f"t/conv1.0.{stamp}.npy", f"t/input_conv1.1.{stamp - 5}.npy", f"t/input_stem.0.{stamp + 9}.npy")
    found = catalogue(tmp_path)
    assert keys(found, Role.INPUT) == {f"t/input_conv1.1.{stamp - 5}.npy"}
    assert by_key(found)["conv1.0"].key == f"t/conv1.0.{stamp}.npy"


def test_of_two_writings_of_one_node_the_newest_is_read(tmp_path: Path) -> None:
    put(tmp_path, "a.0.1796042114887486.npy", "b.0.1796042114887490.npy", "a.0.1796042999887486.npy")
    found = catalogue(tmp_path)
    assert keys(found) == {"a.0.1796042999887486.npy", "b.0.1796042114887490.npy"}
    assert any("time stamp" in note for note in found.notes)


@pytest.mark.parametrize("folders", [("Result_0", "Result_1", "Result_10"), ("outputs/0", "outputs/1", "outputs/2")])
def test_of_several_samples_the_first_is_read_and_said(tmp_path: Path, folders: tuple[str, ...]) -> None:
    put(tmp_path, *(f"{folder}/x.raw" for folder in folders))
    found = catalogue(tmp_path)
    assert keys(found) == {f"{folders[0]}/x.raw"}
    assert any("3 samples" in note for note in found.notes)


def test_inputs_beside_outputs(tmp_path: Path) -> None:
    put(tmp_path, "inputs/0.npy", "inputs/1.npy", "outputs/0/x.dat", "outputs/1/x.dat")
    found = catalogue(tmp_path)
    assert (keys(found), keys(found, Role.INPUT)) == ({"outputs/0/x.dat"}, {"inputs/0.npy"})


@pytest.mark.parametrize(
    ("stems", "orders"),
    [
        (("000_conv", "001_relu", "010_conv"), [0, 1, 10]),
        (("1", "2", "12"), [1, 2, 12]),
        (("tensor_003", "tensor_004"), [3, 4]),
        (("conv_1", "relu_1"), [None, None]),
        (("a", "b"), [None, None]),
    ],
)
def test_running_numbers_give_the_order(tmp_path: Path, stems: tuple[str, ...], orders: list[int | None]) -> None:
    put(tmp_path, *(f"{stem}.npy" for stem in stems))
    found = by_key(catalogue(tmp_path))
    assert [found[stem].order for stem in stems] == orders


def manifest(folder: Path, *items: dict[str, Any]) -> None:
    (folder / "manifest.json").write_text(json.dumps({"tensors": items}))


def test_scales_of_a_manifest(tmp_path: Path) -> None:
    put(tmp_path, "a.bin", "b.bin")
    common = {"dtype": "int8", "shape": [3, 8]}
    manifest(
        tmp_path,
        {"file": "a.bin", "name": "a", "scale": 0.5, "zero_point": -128, **common},
        {"file": "b.bin", "name": "b", "scale": [1, 2, 4], "axis": -2, **common},
    )
    found = by_key(catalogue(tmp_path))
    one, many = found["a"].quant, found["b"].quant
    assert one is not None
    assert many is not None
    assert (one.scale, one.zero_point, one.axis) == (0.5, -128, None)
    assert (many.scale.tolist(), many.zero_point.tolist(), many.axis) == ([1, 2, 4], [0, 0, 0], 0)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"file": "../a.bin"}, "outside"),
        ({"file": "/etc/hostname"}, "outside"),
        ({"file": "gone.bin"}, "not there"),
        ({"file": "a.bin", "dtype": "float32", "shape": [2, 4]}, "holds 24 bytes.*takes 32"),
        ({"file": "a.bin", "dtype": "float", "shape": [6]}, "not known"),
        ({"file": "a.bin", "dtype": "float32", "shape": [-6]}, "no list of sizes"),
        ({"file": "a.bin", "dtype": "int8", "shape": [24], "scale": 0}, "not positive"),
        ({"file": "a.bin", "dtype": "int8", "shape": [24], "scale": [1, 2]}, "no axis"),
        ({"file": "a.bin", "dtype": "int8", "shape": [24], "scale": "x"}, "no number"),
        ({"file": "a.bin", "dtype": "int4", "shape": [24]}, "beyond the range"),
    ],
)
def test_a_bad_item_is_told_and_the_rest_goes_on(tmp_path: Path, item: dict[str, Any], reason: str) -> None:
    dump = tmp_path / "dump"
    put(dump, "a.bin", "b.bin", value=-7.25)
    put(tmp_path, "a.bin")
    manifest(dump, {"name": "a", **item}, {"file": "b.bin", "name": "b", "dtype": "float32", "shape": [2, 3]})
    found = catalogue(dump)
    assert by_key(found)["b"].load().max() == -7.25
    if found.problems:
        assert found.problems[0].names[0] == "a"
        with pytest.raises(DumpError, match=reason):
            raise DumpError(found.problems[0].reason)
    else:
        with pytest.raises(DumpError, match=reason):
            by_key(found)["a"].load()


ITEM = {"file": "a.bin", "name": "a", "dtype": "float32", "shape": [6]}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"zeropoint": 3}, "unknown key 'zeropoint' in item 0 (did you mean 'zero_point'?)"),
        ({"scales": 0.5}, "unknown key 'scales' in item 0 (did you mean 'scale'?)"),
        ({"axes": 1}, "unknown key 'axes' in item 0 (did you mean 'axis'?)"),
    ],
)
def test_a_misspelt_key_of_a_manifest_is_no_comment(tmp_path: Path, item: dict[str, Any], said: str) -> None:
    put(tmp_path, "a.bin")
    manifest(tmp_path, {**ITEM, **item})
    with pytest.raises(DumpError) as caught:
        catalogue(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'manifest.json'}: {said}"


def test_a_misspelt_list_of_a_manifest_is_no_comment(tmp_path: Path) -> None:
    put(tmp_path, "a.bin")
    (tmp_path / "manifest.json").write_text(json.dumps({"tensor": [ITEM]}))
    with pytest.raises(DumpError, match=r"unknown key 'tensor' .*'tensors'"):
        catalogue(tmp_path)


@pytest.mark.parametrize("extra", [{"op": "Conv"}, {"sample": 0}, {"type": "feature map"}, {"comment": ""}])
def test_a_key_of_ones_own_in_a_manifest_is_told_and_harms_nothing(tmp_path: Path, extra: dict[str, Any]) -> None:
    put(tmp_path, "a.bin", "b.bin")
    manifest(tmp_path, {**ITEM, **extra}, {**ITEM, "file": "b.bin", "name": "b", **extra})
    found = catalogue(tmp_path)
    assert {entry.names[0] for entry in found.entries} == {"a", "b"}
    assert [note for note in found.notes if f"unknown key {next(iter(extra))!r}" in note] == [found.notes[-1]]


def test_another_tools_manifest_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path, "a.npy")
    (tmp_path / "manifest.json").write_text('{"version": 1, "files": ["a.npy"], "itemInfoEntries": {}}')
    assert [entry.key for entry in catalogue(tmp_path).entries] == ["a.npy"]


def test_a_link_out_of_the_folder_is_not_followed_by_a_manifest(tmp_path: Path) -> None:
    put(tmp_path, "secret.bin", "dump/b.npy")
    (tmp_path / "dump" / "a.bin").symlink_to(tmp_path / "secret.bin")
    manifest(tmp_path / "dump", {"file": "a.bin", "name": "a", "dtype": "float32", "shape": [6]})
    assert "outside" in catalogue(tmp_path / "dump").problems[0].reason


def test_files_that_cannot_be_opened_or_are_cut_are_problems(tmp_path: Path) -> None:
    put(tmp_path, "good.npy", "cut.npy", "empty.bin")
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:-4])
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / "notes.md").write_text("hello")
    found = catalogue(tmp_path)
    assert keys(found) == {"good.npy"}
    assert {problem.names[0] for problem in found.problems} == {"loop", "cut", "empty"}
    assert found.ignored == ("1 .md (notes.md)",)


def test_weights_beside_a_model_file_are_no_values(tmp_path: Path) -> None:
    put(tmp_path, "m.bin", "m.onnx.data", "x.npy")
    (tmp_path / "m.param").write_text("7767517\n")
    (tmp_path / "m.onnx").write_bytes(b"model")
    assert keys(catalogue(tmp_path)) == {"x.npy"}


def test_npy_without_an_ending_is_found(tmp_path: Path) -> None:
    put(tmp_path, "x.npy")
    (tmp_path / "x.npy").rename(tmp_path / "conv1.tmp_0")
    assert catalogue(tmp_path).entries[0].names == ("conv1.tmp_0",)


def test_nothing_to_read_is_one_line_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.npy").write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    for place, reason in (("missing", "cannot be read"), ("empty", "is empty"), ("logs", "no tensors"), ("bad", "a.npy")):
        with pytest.raises(DumpError, match=reason) as caught:
            catalogue(tmp_path / place)
        assert caught.value.hint
        assert "\n" not in str(caught.value)


def test_the_listing_does_not_depend_on_the_order_of_the_folder(tmp_path: Path) -> None:
    put(tmp_path, *(f"{name}.npy" for name in "dacb"))
    assert [entry.key for entry in catalogue(tmp_path).entries] == ["a.npy", "b.npy", "c.npy", "d.npy"]
