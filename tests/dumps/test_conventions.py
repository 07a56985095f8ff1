"""Toolchains as data: every file is sound, every real folder is recognised, and a new toolchain is one file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_align.cli.main import main
from bisect_align.dumps.catalogue import by_key, catalogue
from bisect_align.dumps.convention import CONFIDENCES, GENERIC, SANITISERS, Convention, known, load, parse
from bisect_align.dumps.entry import Catalogue, Role
from bisect_align.dumps.recognise import Folder, recognise
from bisect_align.errors import DumpError
from bisect_align.matching.claims import Claims, claim

HEALTHY = Path(__file__).resolve().parents[2] / "models" / "healthy"
STAMP = 1796042114887486
ASKED = (
    *("generic", "rknn", "tpu-mlir", "ascend-msaccucmp", "ascend-msprobe", "qnn", "snpe", "tidl", "quark", "esp-ppq", "acuity"),
    *("openvino", "ncnn", "mnn", "tvm", "tflite", "onnxruntime", "polygraphy", "onnx-test-data", "nncase", "axera", "horizon"),
)

# What the beginning of a folder's name says; dumps written under the model's own names bear no marks.
TOOLCHAINS: Mapping[str, str] = {
    **{name: name for name in ("rknn", "mnn", "ncnn", "openvino", "tflite", "tvm", "quark", "polygraphy")},
    "espppq": "esp-ppq",
    "msprobe": "ascend-msprobe",
    "ort": "onnxruntime",
    "qnn": "onnxruntime",
    "tpumlir": "tpu-mlir",
    "tpumlir_cmodel": "tpu-mlir",
    "tpumlir_cvimodel": "tpu-mlir",
}
UNMARKED = {
    "qnn-mnist-fp16",
    "qnn-ppocr_cls-fp16",
    "openvino-basic_pitch-bf16",
    "openvino-stereo-bf16",
    "ort-pplcnet_cut-int8_qdq",
}


@dataclass(frozen=True)
class Node:
    name: str
    op: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...] = ("x",)
    constants: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(output for node in self.nodes for output in node.outputs)


TORCH = Graph(
    (
        Node("/layer1/conv/Conv", "Conv", ("/layer1/conv/Conv_output_0",)),
        Node("/layer1/relu/Relu", "Relu", ("/layer1/relu/Relu_output_0",)),
        Node("/attn/Split", "Split", ("/attn/Split_output_0", "/attn/Split_output_1")),
        Node("fc", "Gemm", ("logits",)),
        Node("Softmax", "Softmax", ("prob",)),
    )
)


def put(folder: Path, *places: str) -> None:
    """Files of six float32 values (.npy, or bytes), of texts, or of nothing much for other endings."""
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.arange(6, dtype=np.float32)
        if path.suffix == ".npy":
            np.save(path, values.reshape(2, 3))
        elif path.suffix in (".bin", ".raw", ".dat", ".y"):
            path.write_bytes(values.tobytes())
        else:
            path.write_text("".join(f"{value:.6f}\n" for value in values))


def said(found: Catalogue, graph: Graph = TORCH) -> dict[str, tuple[str, str]]:
    """Entry -> (tensor, rule), of all claims."""
    claims: Claims = claim(found.entries, graph, rewrites=found.rewrites)
    return {one.entry: (one.tensor, one.rule.value) for one in claims.claims}


# ---- the files -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("one", known(), ids=lambda one: one.name)
def test_every_file_is_sound_and_says_who_says_so(one: Convention) -> None:
    assert one.title
    assert one.make.text
    assert {part.source for _, part in one.parts} <= one.sources.keys()
    assert {part.source for _, part in one.parts} >= {
        key for key, source in one.sources.items() if source.confidence != "unverified"
    }
    assert one.confidence in CONFIDENCES
    assert one.name == GENERIC or (one.recognise and one.parts)


def test_all_toolchains_that_were_asked_for_are_there() -> None:
    names = [one.name for one in known()]
    assert set(ASKED) <= set(names)
    assert len(names) == len(set(names))


def test_sanitisers_are_the_documented_ones() -> None:
    def spell(rule: str, name: str) -> str:
        for step in SANITISERS[rule]:
            name = step.apply(name)
        return name

    assert spell("identifier", "/layer1//conv.0:0") == "_layer1_conv_0_0"
    assert spell("identifier", "7") == "_7"
    assert spell("word-dash", "a/b.c-d") == "a_b_c-d"
    assert spell("alphanumeric", "a/b.c-d") == "a_b_c_d"
    assert spell("ascend", "a/b.c\\d e") == "a_b_c_d_e"
    assert spell("openvino", "a/b:c d" + "x" * 300) == ("a_b-c_d" + "x" * 300)[-240:]
    assert spell("slash-dot", "/a.0/b@1") == "_a_0_b@1"


# ---- recognition -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("folder", sorted(HEALTHY.iterdir()), ids=lambda folder: folder.name)
def test_every_real_folder_is_recognised(folder: Path) -> None:
    found = catalogue(folder / "dump")
    expected = GENERIC if folder.name in UNMARKED else TOOLCHAINS[folder.name.partition("-")[0]]
    assert found.convention == expected
    assert expected == GENERIC or any(f"convention {expected}" in note for note in found.notes)
    assert not found.problems


SYNTHETIC = [
    ("acuity", ["D/iter_0_Conv_Conv_0_252_out0_nchw_1_2_3.tensor", "D/iter_0_input_1_158_out0_1_2_3.tensor"]),
    ("ascend-msaccucmp", [f"d/0/Conv.conv1.3.1.{STAMP}.output.0.npy", f"d/0/Conv.conv1.3.1.{STAMP}.input.0.npy"]),
    ("ascend-msprobe", [f"dump_data/onnx/conv1.0.{STAMP}.npy", f"dump_data/onnx/input_conv1.0.{STAMP - 3}.npy"]),
    ("esp-ppq", ["inputs/0.npy", "outputs/0/conv1.dat", "outputs/1/conv1.dat"]),
    ("horizon", ["layer-1-Dequantize-fc_HzDequantize-output-0-fc1000.bin", "layer-0-bpu-sub_0-output-0-fc_nhwc2nchw.bin"]),
    ("nncase", ["Runtime/1$conv2d", "Runtime/1$conv2d$input", "Runtime/2$relu"]),
    ("onnx-test-data", ["test_data_set_0/output_0.pb", "test_data_set_0/input_0.pb"]),
    ("openvino", ["#3_Convolution_conv1_Conv_WithoutBiases_out0.ieb", "#4_Pooling_pool_out0.ieb"]),
    ("openvino", ["convolution_conv1_dst_0.txt", "convolution_conv1_src_0.txt"]),
    ("paddle-lite", ["PaddleLite_1/precision_summary.log", "PaddleLite_1/conv_0_1.txt"]),
    ("qnn", ["Result_0/_layer1_conv_Conv_output_0.raw", "Result_0/prob.raw"]),
    ("snpe", ["Result_0/Identity:0.raw", "Result_0/classes:0.raw"]),
    ("snpe", ["Result_0/conv/tensor_0.raw", "Result_0/prob.raw"]),
    ("mnn", ["output/.order", "output/483_0", "output/Input_483_0"]),
    ("tidl", ["tidl_trace_subgraph_0_0001_0001_0001_00001_00001_000003x00002_float.bin"]),
    ("tidl", ["tidl_trace0072_00001_00001_00003x00002.y"]),
    ("tvm", ["tvmgen_default_fused_nn_conv2d____topo-index:1____output-num:0.npy"]),
    ("vitis-ai", ["dump_results_1/conv1_int8.bin", "dump_results_2/conv1_int8.bin"]),
    ("rknn", ["snapshot/golden/a.txt", "snapshot/simulator/a.txt", "snapshot/runtime/a.txt"]),
    ("generic", ["conv1.npy", "relu1.npy", "prob.npy"]),
    ("generic", ["001_conv1.npy", "002_relu1.npy"]),
    ("generic", ["a_Conv.npy", "b_Relu.npy", "c_Add.npy"]),
    ("generic", ["model/conv/BiasAdd;model/bn.npy"]),
]


@pytest.mark.parametrize(("name", "places"), SYNTHETIC, ids=lambda value: value if isinstance(value, str) else value[0][:24])
def test_a_folder_in_the_documented_form_is_recognised(name: str, places: list[str]) -> None:
    found = recognise(Folder([PurePosixPath(place) for place in places]))
    assert found.convention.name == name
    assert bool(found.evidence) == (name != GENERIC)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([item for item in SYNTHETIC if item[0] != GENERIC]), st.randoms(use_true_random=False), st.booleans())
def test_recognition_minds_neither_order_nor_logs_nor_a_folder_around(item: Any, random: Any, wrapped: bool) -> None:
    name, places = item
    mixed = [*places, "notes.md", "run.log"]
    random.shuffle(mixed)
    mixed = [f"copied/here/{place}" if wrapped else place for place in mixed]
    assert recognise(Folder([PurePosixPath(place) for place in mixed])).convention.name == name


def test_a_folder_that_fits_two_is_read_as_generic_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, "000_fused_a_raster_0.npy", "001_fused_b_raster_1.npy")
    found = catalogue(tmp_path)
    assert found.convention == GENERIC
    assert any("mnn, tvm" in note and "--convention" in note for note in found.notes)
    assert catalogue(tmp_path, load("mnn")).convention == "mnn"


# ---- what names mean -------------------------------------------------------------------------------------------------------
NAMES = [
    ("qnn", "Result_0/_layer1_conv_Conv_output_0.raw", "/layer1/conv/Conv_output_0", "sanitised"),
    ("snpe", "Result_0/layer1/relu/Relu_output_0.raw", "/layer1/relu/Relu_output_0", "folded"),
    ("tpu-mlir", "layer1_relu_Relu_output_0_Relu_f16.npy", "/layer1/relu/Relu_output_0", "suffix"),
    ("openvino", "#3_Convolution__layer1_conv_Conv_WithoutBiases_out0.ieb", "/layer1/conv/Conv_output_0", "node"),
    ("openvino", "#7_Split__attn_Split_out1.ieb", "/attn/Split_output_1", "node"),
    ("ascend-msaccucmp", f"SplitD._attn_Split.7.3.{STAMP}.output.1.npy", "/attn/Split_output_1", "node"),
    ("ascend-msprobe", f"onnx/_attn_Split.1.{STAMP}.npy", "/attn/Split_output_1", "node"),
    ("acuity", "iter_0_Conv__layer1_conv_Conv_12_out0_1_2_3.tensor", "/layer1/conv/Conv_output_0", "node"),
    ("acuity", "iter_0_attach_Softmax_Softmax_out0_0_out0_2_3.tensor", "prob", "node"),
    ("mnn", "output/_layer1_conv_Conv_output_0_0", "/layer1/conv/Conv_output_0", "sanitised"),
    ("quark", "logits_DequantizeLinear_Output_float.bin", "logits", "suffix"),
    ("quark", "_layer1_conv_Conv_output_0_float.bin", "/layer1/conv/Conv_output_0", "sanitised"),
    ("onnxruntime", "logits_DequantizeLinear_Output_1.npy", "logits", "suffix"),
    ("horizon", "layer-0-bpu-sub_0-output-0-logits_nhwc2nchw.bin", "logits", "suffix"),
    ("vitis-ai", "dump_results_1/logits_float.bin", "logits", "exact"),
    ("rknn", "simulator/npy/_layer1_conv_Conv_output_0_mm_tp.npy", "/layer1/conv/Conv_output_0", "suffix"),
]


@pytest.mark.parametrize(("name", "place", "tensor", "rule"), NAMES, ids=[f"{item[0]}-{item[2]}" for item in NAMES])
def test_a_documented_name_leads_to_its_tensor(tmp_path: Path, name: str, place: str, tensor: str, rule: str) -> None:
    put(tmp_path, place)
    if place.endswith(".ieb"):
        (tmp_path / place).write_text("FP32 2D shape: 2 3 (6) by address 0x1\n" + "1\n" * 6)
    assert said(catalogue(tmp_path, load(name))) == {place: (tensor, rule)}


def test_an_operand_of_a_tensor_is_not_the_tensor(tmp_path: Path) -> None:
    put(tmp_path, "logits_raster_0.npy", "prob.npy")
    found = catalogue(tmp_path)
    assert found.convention == "mnn"
    assert said(found) == {"prob.npy": ("prob", "exact")}


def test_which_side_of_a_pair_a_value_is_from(tmp_path: Path) -> None:
    put(tmp_path, "a.npy", "a_DequantizeLinear_Output.npy", "b_QuantizeLinear_Output.npy")
    found = by_key(catalogue(tmp_path))
    assert [found[f"{key}.npy"].view for key in ("a", "a_DequantizeLinear_Output", "b_QuantizeLinear_Output")] == [
        *("", "consumers", "codes")
    ]


def test_inputs_of_nodes_and_weights_are_no_targets(tmp_path: Path) -> None:
    ascend = [f"Conv.conv1.3.1.{STAMP}.{side}.0.npy" for side in ("input", "output")]
    put(tmp_path, *ascend, f"Opdebug.Node_OpDebug.9.9.{STAMP}.output.0.npy")
    found = catalogue(tmp_path)
    assert found.convention == "ascend-msaccucmp"
    assert {entry.key: entry.role for entry in found.entries} == {ascend[0]: Role.INPUT, ascend[1]: Role.TARGET}
    assert by_key(found)[ascend[1]].names[0] == "conv1.0"
    assert by_key(found)[ascend[1]].decoration == "Conv"


def test_a_board_makes_the_simulator_a_reference(tmp_path: Path) -> None:
    put(
        tmp_path,
        *(f"{side}/npy/a.npy" for side in ("golden", "simulator", "runtime")),
        *(f"{side}/a.txt" for side in ("golden", "runtime")),
    )
    found = catalogue(tmp_path)
    assert {entry.key: entry.role.value for entry in found.entries} == {
        "golden/npy/a.npy": "reference",
        "simulator/npy/a.npy": "reference",
        "runtime/npy/a.npy": "target",
    }


def test_long_names_of_ascend_come_from_their_map(tmp_path: Path) -> None:
    put(tmp_path, "1234567890.output.0.npy", f"Conv.conv1.3.1.{STAMP}.output.0.npy")
    (tmp_path / "mapping.csv").write_text(f"1234567890,Relu._layer1_relu_Relu.4.1.{STAMP + 1}\n")
    found = catalogue(tmp_path, load("ascend-msaccucmp"))
    assert said(found)["1234567890.output.0.npy"] == ("/layer1/relu/Relu_output_0", "node")


def test_raw_files_of_a_device_are_told_how_to_be_converted(tmp_path: Path) -> None:
    (tmp_path / f"Conv.conv1.3.1.{STAMP}").write_bytes(bytes(64))
    with pytest.raises(DumpError, match=r"no tensors that can be read.*Ascend.*turn every file into \.npy"):
        catalogue(tmp_path)


# ---- samples ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "folders", [("Result_0", "Result_1", "Result_10"), ("test_data_set_1", "test_data_set_2", "test_data_set_3")]
)
def test_any_sample_can_be_read(tmp_path: Path, folders: tuple[str, ...]) -> None:
    put(tmp_path, *(f"{folder}/x.raw" for folder in folders))
    for number, folder in enumerate(folders):
        found = catalogue(tmp_path, sample=number)
        assert [entry.key for entry in found.entries] == [f"{folder}/x.raw"]
        assert any("3 samples" in note and folder in note for note in found.notes)
    with pytest.raises(DumpError, match="holds 3 samples"):
        catalogue(tmp_path, sample=3)


def test_samples_by_the_convention_and_where_there_are_none(tmp_path: Path) -> None:
    put(tmp_path / "a", *(f"iter_{k}_Conv_conv1_3_out0_2_3.tensor" for k in range(3)))
    assert [entry.key[:6] for entry in catalogue(tmp_path / "a", sample=1).entries] == ["iter_1"]
    put(tmp_path / "b", "dump_results_1/x_float.bin", "dump_results_2/x_float.bin")
    assert [entry.key for entry in catalogue(tmp_path / "b").entries] == ["dump_results_1/x_float.bin"]
    put(tmp_path / "c", "x.npy")
    with pytest.raises(DumpError, match="no samples"):
        catalogue(tmp_path / "c", sample=1)


# ---- a toolchain of one's own ----------------------------------------------------------------------------------------------
OWN = r"""
name = "my-npu"
title = "a chip that nobody knows"
container = "files"

[sources]
me = { title = "my own runs", confidence = "measured" }

[make]
text = "mynpu --dump"
source = "me"

[[recognise]]
why = "files of my NPU"
files = ["*.mynpu.bin"]
strength = "marker"
source = "me"

[[entries]]
pattern = '(^|/)core(?P<core>\d+)~(?P<order>\d+)~(?P<tensor>[^/]+?)(?P<decoration>@q)?\.mynpu\.bin$'
dtype = "float32"
source = "me"

[[suffixes]]
pattern = '~nhwc'
text = "another layout"
source = "me"

[[suffixes]]
pattern = '~tmp\d+'
text = "scratch memory"
decoration = false
source = "me"

[names]
source = "me"
rewrites = [{ pattern = "/", by = "%2F" }, { pattern = "_output_(\\d)$", by = "!\\1" }]

[layout]
order = "nhwc"
text = "always"
source = "me"
"""


def test_a_new_toolchain_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(OWN)
    dump = tmp_path / "dump"
    put(
        dump,
        "core0~3~%2Flayer1%2Fconv%2FConv!0.mynpu.bin",
        "core0~4~%2Fattn%2FSplit!1~nhwc.mynpu.bin",
        "core0~5~logits@q.mynpu.bin",
        "core0~6~prob~tmp4.mynpu.bin",
    )
    own = load(str(tmp_path / "my.toml"))
    found = catalogue(dump, own)
    assert found.convention == "my-npu"
    assert said(found) == {
        "core0~3~%2Flayer1%2Fconv%2FConv!0.mynpu.bin": ("/layer1/conv/Conv_output_0", "sanitised"),
        "core0~4~%2Fattn%2FSplit!1~nhwc.mynpu.bin": ("/attn/Split_output_1", "suffix"),
        "core0~5~logits@q.mynpu.bin": ("logits", "suffix"),
    }
    assert sorted(entry.order or 0 for entry in found.entries) == [3, 4, 5, 6]
    files = Folder([PurePosixPath(entry.key) for entry in found.entries])
    assert recognise(files, [*known(), own]).convention is own


def test_a_new_toolchain_gets_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A healthy run of a real model under names that only the user's file explains, two samples deep."""
    nets, dump = HEALTHY.parent / "nets" / "mnist", tmp_path / "dump"
    for file in (HEALTHY / "ort-mnist-fp16" / "dump").glob("*.npy"):
        for sample in (0, 1):
            place = dump / f"frame-{sample}" / f"core0~1~{file.stem}@q.mynpu.bin"
            place.parent.mkdir(parents=True, exist_ok=True)
            (np.load(file).astype(np.float32) * (1 if sample else np.nan)).tofile(place)
    frames = '[samples]\nfolder = "frame-(?P<sample>[0-9]+)"\ntext = "one a frame"\nsource = "me"\n'
    (tmp_path / "my.toml").write_text(OWN + frames)
    run = [
        str(nets / "model.onnx"),
        "--target-dump",
        str(dump),
        "--inputs",
        str(nets / "inputs.npz"),
        "-o",
        str(tmp_path / "out"),
    ]
    own = ["--convention", str(tmp_path / "my.toml")]
    assert main([*run, *own, "--sample", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "by suffix" in shown
    assert "convention my-npu" in shown
    assert "holds 2 samples; number 1" in shown
    for words, reason in (
        ([*own, "--sample", "2"], "holds 2 samples"),
        (["--convention", "mine"], "no convention"),
        (["--sample", "-1"], "-1"),
    ):
        assert main([*run, *words]) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('title = "a chip that nobody knows"', "", r"title is missing.*a text"),
        ('container = "files"', 'container = "file"', r"container must be one of files, npz, json, any.*did you mean 'files'"),
        ('strength = "marker"', 'strenght = "marker"', r"recognise\[0\]\.strenght is not known.*did you mean strength"),
        ('files = ["*.mynpu.bin"]', "files = 3", r"recognise\[0\]\.files must be a list, each a text, not 3"),
        ('files = ["*.mynpu.bin"]', "", r"recognise\[0\] needs files, formats or keys"),
        ("(?P<core>", "(?P<corn>", r"entries\[0\]\.pattern has the group 'corn'.*core"),
        (r"(?P<core>\d+)", r"(?P<core>\d+", r"entries\[0\]\.pattern is no regular expression"),
        ('dtype = "float32"', 'dtype = "float"', r"entries\[0\]\.dtype: the type 'float' is not known"),
        ('dtype = "float32"', "codes = 1", r"entries\[0\]\.codes must be true or false, not 1"),
        ('dtype = "float32"', 'paired = "node"', r"entries\[0\]\.paired must be a group of the pattern"),
        ('order = "nhwc"', 'order = "hwc"', r"layout\.order must be one of"),
        ('me = { title = "my own runs", confidence = "measured" }', "", r"make\.source is 'me', which \[sources\] does not have"),
        ('confidence = "measured"', 'confidence = "sure"', r"sources\.me\.confidence must be one of measured, vendor"),
        ('by = "%2F"', 'by = "\\\\4"', r"names\.rewrites\[0\]\.by does not go with its pattern"),
        ('name = "my-npu"', 'name = "My NPU"', r"name must be lower-case"),
        ('name = "my-npu"', "name = my-npu", r"is no valid TOML.*line 2"),
    ],
)
def test_a_mistake_in_ones_own_file_names_the_key_and_what_is_allowed(tmp_path: Path, old: str, new: str, reason: str) -> None:
    assert old in OWN
    path = tmp_path / "my.toml"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(DumpError) as caught:
        load(str(path))
    assert re.search(reason, str(caught.value)), str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(OWN)), st.integers(0, 40), st.text(max_size=8))
def test_a_damaged_file_is_one_error(at: int, gone: int, put_in: str) -> None:
    with contextlib.suppress(DumpError):
        parse(OWN[:at] + put_in + OWN[at + gone :], where="my.toml")


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"no convention is called 'rkn'.*rknn"):
        load("rkn")
    with pytest.raises(DumpError, match="cannot be read"):
        load(str(tmp_path / "gone.toml"))
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DumpError, match="no UTF-8"):
        load(str(tmp_path / "binary.toml"))


# ---- the command -----------------------------------------------------------------------------------------------------------
def test_the_command_lists_all_and_shows_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["conventions"]) == 0
    listed = capsys.readouterr().out
    for one in known():
        assert f"{one.name}: " in listed
        assert all(command in listed for command in one.make.commands)
    for one in known():
        assert main(["conventions", one.name]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        for text in (
            one.title,
            one.make.text,
            *(fact.text for fact in one.facts),
            *(source.title for source in one.sources.values()),
        ):
            assert " ".join(text.split()) in shown
        for source in one.sources.values():
            assert f"[{source.confidence}" in shown
    (tmp_path / "my.toml").write_text(OWN)
    assert main(["conventions", str(tmp_path / "my.toml")]) == 0
    assert "a chip that nobody knows" in capsys.readouterr().out
    assert main(["conventions", "nothing"]) == 2
    assert "no convention is called" in capsys.readouterr().err
