"""Names to claims: laws over random names, and the spellings of real toolchains."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bisect_align.dumps.entry import Entry, Expect, Role
from bisect_align.errors import MatchError
from bisect_align.matching.claims import Claims, Rule, claim


@dataclass(frozen=True)
class FakeNode:
    name: str
    op: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class FakeGraph:
    nodes: Sequence[FakeNode]
    inputs: Sequence[str] = ("x",)
    constants: Collection[str] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(output for node in self.nodes for output in node.outputs if output)


def unread(expect: Expect | None) -> NoReturn:
    raise AssertionError("a claim reads no file")


def entry(*names: str, key: str = "", role: Role = Role.TARGET) -> Entry:
    return Entry(key=key or names[0], names=names, source=Path("dump"), format="npy", nbytes=4, role=role, reader=unread)


def nodes_for(tensors: Sequence[str]) -> list[FakeNode]:
    return [FakeNode("", "Relu", (tensor,)) for tensor in tensors]


def claims_of(names: Sequence[str], graph: FakeGraph) -> Claims:
    return claim([entry(name) for name in names], graph)


def said(found: Claims) -> dict[str, tuple[str, str]]:
    return {one.entry: (one.tensor, one.rule.value) for one in found.claims}


TORCH = FakeGraph(
    [
        FakeNode("/layer1/conv/Conv", "Conv", ("/layer1/conv/Conv_output_0",)),
        FakeNode("/layer1/relu/Relu", "Relu", ("/layer1/relu/Relu_output_0",)),
        FakeNode("/attn/Split", "Split", ("/attn/Split_output_0", "/attn/Split_output_1")),
        FakeNode("/attn/Softmax", "Softmax", ("/attn/Softmax_output_0",)),
        FakeNode("/pool/MaxPool", "MaxPool", ("/pool/MaxPool_output_0", "")),
        FakeNode("fc", "Gemm", ("logits",)),
        FakeNode("Softmax", "Softmax", ("prob",)),
    ],
    inputs=("x",),
    constants=("layer1.conv.weight", "fc.bias"),
)


@pytest.mark.parametrize(
    ("name", "tensor", "rule", "affix"),
    [
        ("logits", "logits", "exact", ""),
        ("x", "x", "exact", ""),
        ("_layer1_conv_Conv_output_0", "/layer1/conv/Conv_output_0", "sanitised", ""),
        ("layer1_conv_Conv_output_0", "/layer1/conv/Conv_output_0", "sanitised", ""),
        ("LAYER1.conv__Conv_output_0", "/layer1/conv/Conv_output_0", "folded", ""),
        ("/layer1/conv/Conv", "/layer1/conv/Conv_output_0", "node", ""),
        ("_layer1_conv_Conv", "/layer1/conv/Conv_output_0", "node", ""),
        ("layer1_conv_conv", "/layer1/conv/Conv_output_0", "node", ""),
        ("fc.0", "logits", "node", ""),
        ("_attn_Split.1.1796042114887908", "/attn/Split_output_1", "node", ""),
        ("/attn/Split:1", "/attn/Split_output_1", "node", ""),
        ("logits_DequantizeLinear_Output", "logits", "suffix", "_DequantizeLinear_Output"),
        ("_layer1_relu_Relu_output_0-rs", "/layer1/relu/Relu_output_0", "suffix", "-rs"),
        ("_layer1_relu_Relu_output_0_raster_3", "/layer1/relu/Relu_output_0", "suffix", "_raster_#"),
        ("logits_Gemm_asm_17_0_1_actual", "logits", "suffix", "_Gemm_asm_#_#_#_actual"),
        ("prob_Softmax", "prob", "suffix", "_Softmax"),  # a node is called Softmax, but so is the operator
        ("Relu__layer1_relu_Relu_output_0", "/layer1/relu/Relu_output_0", "prefix", "Relu__"),
        ("003__layer1_relu_Relu_output_0", "/layer1/relu/Relu_output_0", "prefix", "#__"),
        ("onnx_node_layer1_relu_Relu", "/layer1/relu/Relu_output_0", "prefix", "onnx_node_"),
        ("Gemm_logits", "logits", "prefix", "Gemm_"),
    ],
)
def test_spellings_of_toolchains(name: str, tensor: str, rule: str, affix: str) -> None:
    (one,) = claims_of([name], TORCH).claims
    assert (one.tensor, one.rule, one.affix) == (tensor, rule, affix)
    assert one.weak is (rule in ("node", "suffix", "prefix"))
    assert one.kind == (rule, affix)


@pytest.mark.parametrize(
    "name",
    [
        "logits_1",
        "logits.1",
        "logits_output_0",
        "logits_1_DequantizeLinear_Output",  # a sibling, decorated
        "logits10",
        "mylogits",
        "my_logits_f32",  # decorated at both ends
        "something_logits",  # one word behind a prefix seen once
        "fc.2",  # the node has one output
        "/pool/MaxPool.1",  # its second output is absent
        "fc_in0",
        "fc.input.0",
        "input_fc",
        "logits_Gemm/layer1/relu/Relu_output_0_Relu",
        "logits_Gemmprob_Softmax_f32",  # glued without a separator
        "_1",
        "__",
        "",
    ],
)
def test_what_is_no_claim(name: str) -> None:
    found = claims_of([name or "/"], TORCH)
    assert not found.claims
    assert not found.weights
    assert not found.ambiguous


def test_a_decorated_name_of_a_node_with_several_outputs_is_ambiguous() -> None:
    found = claims_of(["_attn_Split_f32"], TORCH)
    assert found.ambiguous == {"_attn_Split_f32": ("/attn/Split_output_0", "/attn/Split_output_1")}
    assert found.unclaimed == ("_attn_Split_f32",)


def test_names_that_share_a_spelling_are_ambiguous() -> None:
    graph = FakeGraph(nodes_for(["a/b", "a.b", "Relu", "relu"]))
    found = claims_of(["a_b", "RELU", "a_b_f32"], graph)
    assert not found.claims
    assert {key: set(tensors) for key, tensors in found.ambiguous.items()} == {
        "a_b": {"a/b", "a.b"},
        "RELU": {"Relu", "relu"},
        "a_b_f32": {"a/b", "a.b"},
    }
    assert said(claims_of(["Relu", "relu"], graph)) == {"Relu": ("Relu", "exact"), "relu": ("relu", "exact")}


def test_a_file_named_like_one_tensor_may_be_another_sanitised() -> None:
    graph = FakeGraph(nodes_for(["a/b", "a_b"]))
    assert set(claims_of(["a_b"], graph).ambiguous["a_b"]) == {"a/b", "a_b"}
    assert said(claims_of(["a_b", "a/b"], graph)) == {"a_b": ("a_b", "exact"), "a/b": ("a/b", "exact")}


def test_a_tensor_goes_before_a_node_of_its_name_and_an_output_index_before_a_folded_tensor() -> None:
    graph = FakeGraph(
        [
            FakeNode("b", "Relu", ("a",)),
            FakeNode("a", "Relu", ("c",)),
            FakeNode("n", "LSTM", ("y", "h")),
            FakeNode("", "Add", ("n_1",)),
        ]
    )
    assert said(claims_of(["a", "n.1", "n_1"], graph)) == {"a": ("a", "exact"), "n.1": ("h", "node"), "n_1": ("n_1", "exact")}


def test_twins_claim_one_tensor_strongest_first() -> None:
    found = claims_of(["logits_DequantizeLinear_Output", "fc", "logits"], TORCH)
    assert [one.entry for one in found.claims] == ["logits", "fc", "logits_DequantizeLinear_Output"]
    assert {one.tensor for one in found.claims} == {"logits"}


def test_the_longest_part_and_the_best_name_win() -> None:
    graph = FakeGraph(nodes_for(["conv", "conv_relu", "scale.tmp", "tmp"]))
    assert said(claims_of(["conv_relu_f32"], graph))["conv_relu_f32"] == ("conv_relu", "suffix")
    found = claim([entry("unknown", "conv", key="e")], graph)
    assert said(found)["e"] == ("conv", "exact")
    found = claim([entry("q.tmp_f32", "outputs/0/scale.tmp", key="e")], graph)
    assert said(found) == {"e": ("scale.tmp", "prefix")}


def test_roles() -> None:
    entries = [
        entry("logits", key="reference", role=Role.REFERENCE),
        entry("logits", key="input", role=Role.INPUT),
        entry("x_quantized", key="x", role=Role.INPUT),
        entry("layer1_conv_weight", key="w", role=Role.WEIGHT),
        entry("logits", key="not a weight", role=Role.WEIGHT),
        entry("fc.bias_f16", key="b"),
    ]
    found = claim(entries, TORCH)
    assert said(found) == {"x": ("x", "suffix")}
    assert {one.entry: one.tensor for one in found.weights} == {"w": "layer1.conv.weight", "b": "fc.bias"}
    assert found.unclaimed == ("input", "not a weight")
    assert found.beside(TORCH.tensors) == {"x", "w", "b"}


def test_what_a_node_reads_is_no_copy_of_the_graph_input() -> None:
    graph = FakeGraph([FakeNode("conv1", "Conv", ("y",))], inputs=("input",))
    for role in (Role.TARGET, Role.INPUT):
        assert not claim([entry("input_conv1.0.1796042114887908", role=role)], graph).claims


def test_the_map_goes_before_every_rule() -> None:
    entries = [entry("logits", key="a.npy"), entry("junk", key="b.npy"), entry("prob", key="c.npy"), entry("w", key="d.npy")]
    found = claim(entries, TORCH, {"a.npy": "prob", "junk": "logits", "c.npy": "", "d.npy": "fc.bias"})
    assert said(found) == {"a.npy": ("prob", "map"), "b.npy": ("logits", "map")}
    assert [one.tensor for one in found.weights] == ["fc.bias"]
    assert found.ignored == ("c.npy",)
    with pytest.raises(MatchError, match="nearest: logits"):
        claim(entries, TORCH, {"a.npy": "logit"})


# Laws

word = st.text("abcXYZ", min_size=1, max_size=4)
tensor_names = st.lists(
    st.lists(word | st.integers(0, 99).map(str), min_size=1, max_size=4).flatmap(
        lambda words: st.lists(st.sampled_from(["/", "_", ".", ":", "@", "__"]), min_size=len(words), max_size=len(words)).map(
            lambda seps: "".join(part for pair in zip(words, seps, strict=True) for part in pair)[: -len(seps[-1])]
        )
    ),
    min_size=1,
    max_size=8,
    unique=True,
)
SANITISERS: list[Callable[[str], str]] = [
    lambda name: name.replace("/", "_"),
    lambda name: re.sub(r"[./]", "_", name),
    lambda name: re.sub(r"[^A-Za-z0-9_.-]", "_", name),
    lambda name: re.sub(r"[^A-Za-z0-9_.-]+", "_", name),
    lambda name: re.sub(r"[^A-Za-z0-9]", "_", name),
    lambda name: re.sub(r"^(?=\d)", "_", re.sub(r"\W+", "_", name)),
]


@given(tensor_names, st.sampled_from(SANITISERS))
def test_a_sanitised_dump_is_claimed_right_or_called_ambiguous(tensors: list[str], sanitise: Callable[[str], str]) -> None:
    files = {sanitise(name) for name in tensors}
    found = claim([entry(file) for file in sorted(files)], FakeGraph(nodes_for(tensors), inputs=()))
    spoken_of = {one.entry: {one.tensor} for one in found.claims} | {key: set(names) for key, names in found.ambiguous.items()}
    for name in tensors:
        assert name in spoken_of[sanitise(name)]
    for one in found.claims:
        assert [name for name in tensors if sanitise(name) == one.entry] == [one.tensor]


@given(tensor_names)
def test_exact_names_claim_themselves(tensors: list[str]) -> None:
    found = claim([entry(name) for name in tensors], FakeGraph(nodes_for(tensors), inputs=()))
    assert said(found) == {name: (name, "exact") for name in tensors}


@given(tensor_names, st.data())
def test_a_longer_or_shorter_number_is_another_name(tensors: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(tensors))
    digit = data.draw(st.integers(0, 9))
    other = data.draw(st.sampled_from([f"{name}{digit}", f"{name}_{digit}", f"{name}.{digit}", f"{name}_output_{digit}"]))
    assume(not {other.replace(".", "_")} & {re.sub(r"\W", "_", known) for known in tensors})
    for one in claims_of([other], FakeGraph(nodes_for(tensors), inputs=())).claims:
        assert one.tensor != name


@given(tensor_names, st.lists(st.text("abX1_./-", max_size=12), max_size=8))
def test_every_entry_has_one_fate(tensors: list[str], names: list[str]) -> None:
    entries = [entry(name, key=f"{place}") for place, name in enumerate([*tensors, *names])]
    found = claim(entries, FakeGraph(nodes_for(tensors), inputs=()))
    fates = [*(one.entry for one in (*found.claims, *found.weights)), *found.unclaimed, *found.ignored]
    assert sorted(fates) == sorted(one.key for one in entries)
    assert set(found.ambiguous) <= set(found.unclaimed)
    assert all(len(rivals) > 1 for rivals in found.ambiguous.values())
    assert [list(Rule).index(one.rule) for one in found.claims] == sorted(list(Rule).index(one.rule) for one in found.claims)


def test_the_cost_grows_with_the_names_not_with_their_pairs() -> None:
    def seconds(count: int) -> float:
        tensors = [f"/model/layers.{number // 20}/block_{number % 20}/mlp/MatMul_output_{number}" for number in range(count)]
        graph = FakeGraph([FakeNode("Same", "MatMul", (tensor,)) for tensor in tensors])
        entries = [entry(f"no{tensor}{affix}") for tensor in tensors for affix in ("z_f32", "_DequantizeLinear_Output")]
        start = time.process_time()
        claim(entries, graph)
        return time.process_time() - start

    # Pairs would make it 64 times slower.
    assert min(seconds(1600) for _ in range(2)) < 24 * max(seconds(200), 0.01)
