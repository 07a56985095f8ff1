"""Whatever is asked for, in whatever way, the bits are those of one session over the whole model."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from golden_graphs import NETS, exposed, random_feeds, random_model, same
from hypothesis import given, settings
from hypothesis import strategies as st

from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.model.graph import graph_of
from bisect_align.model.region import region

SEEDS = st.integers(0, 10_000)


def net(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    with np.load(NETS / name / "inputs.npz") as inputs:
        return onnx.load(NETS / name / "model.onnx"), dict(inputs)


@pytest.mark.parametrize("name", ["mnist", "ppocr_cls", "tinyformer"])
def test_real_models_stream_replay_and_local_equal_the_exposed_session(name: str) -> None:
    model, feeds = net(name)
    graph, whole = graph_of(model), exposed(model, feeds)
    engine = SegmentEngine(graph)
    streamed = dict(engine.stream(feeds, graph.tensors))
    assert list(streamed) == list(graph.tensors)
    assert [tensor for tensor in whole if not same(streamed[tensor], whole[tensor])] == []
    seen: dict[str, Any] = {}

    def identity(tensor: str, value: Any) -> Any:
        seen[tensor] = value
        return value.copy()

    engine.local(feeds, identity)
    assert [tensor for tensor in whole if not same(seen[tensor], whole[tensor])] == []
    for node in graph.nodes:
        boundary = {tensor: {**feeds, **whole}[tensor] for tensor in node.reads if tensor not in graph.constants}
        alone = engine.replay([node.index], boundary, node.makes)
        assert all(same(alone[tensor], whole[tensor]) for tensor in node.makes), node.label


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, data=st.data())
def test_any_wanted_set_gives_the_same_bits_and_runs_only_its_ancestors(seed: int, data: st.DataObject) -> None:
    model, feeds = random_model(seed), random_feeds(seed)
    graph, whole = graph_of(model), exposed(model, feeds)
    wanted = data.draw(st.sets(st.sampled_from(graph.tensors), min_size=1, max_size=5))
    engine = SegmentEngine(graph)
    got = list(engine.stream(feeds, wanted))
    assert [name for name, _ in got] == sorted(wanted, key=graph.order.__getitem__)
    assert all(same(value, whole[name]) for name, value in got)
    needed = {index for name in wanted for index in region(graph, name, ()).nodes}
    assert engine.counters.node_runs == len(needed)
    assert engine.counters.stream_passes == 1


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, data=st.data())
def test_any_segmentation_gives_the_same_bits(seed: int, data: st.DataObject) -> None:
    model, feeds = random_model(seed), random_feeds(seed)
    graph, whole = graph_of(model), exposed(model, feeds)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(graph.nodes) - 1), max_size=4)))
    engine = SegmentEngine(graph, memory=0)
    known: dict[str, Any] = dict(feeds)
    for start, end in zip([0, *cuts], [*cuts, len(graph.nodes)], strict=True):
        span = range(start, end)
        known |= engine.replay(span, known, [name for index in span for name in graph.nodes[index].makes])
    assert all(same(known[name], whole[name]) for name in graph.tensors)


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, cut=st.integers(0, 100))
def test_a_stream_from_the_middle_equals_one_from_the_inputs(seed: int, cut: int) -> None:
    model, feeds = random_model(seed), random_feeds(seed)
    graph, whole = graph_of(model), exposed(model, feeds)
    last = graph.tensors[-1]
    middle = {name: whole[name] for name in graph.tensors[: cut % len(graph.tensors)]}
    assert all(same(value, whole[name]) for name, value in SegmentEngine(graph).stream({**feeds, **middle}, [last]))


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, data=st.data())
def test_one_local_pass_equals_replaying_each_region_alone(seed: int, data: st.DataObject) -> None:
    model, feeds = random_model(seed), random_feeds(seed)
    graph, whole = graph_of(model), exposed(model, feeds)
    floats = [name for name in graph.tensors if whole[name].dtype == np.float32]
    observed = data.draw(st.sets(st.sampled_from(floats)))
    rng = np.random.default_rng(seed)
    target = {name: (whole[name] + rng.normal(0, 0.1, whole[name].shape)).astype(np.float32) for name in observed}
    predicted: dict[str, Any] = {}

    def hook(name: str, value: Any) -> Any:
        assert name not in predicted
        predicted[name] = value
        return target.get(name)

    engine = SegmentEngine(graph)
    engine.local(feeds, hook)
    assert list(predicted) == list(graph.tensors)
    for name in graph.tensors:
        part = region(graph, name, observed)
        alone = engine.replay(part.nodes, {tensor: {**feeds, **target}[tensor] for tensor in part.boundary}, [name])
        assert same(alone[name], predicted[name])


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS)
def test_weights_as_inputs_come_close_and_no_memory_changes_nothing(seed: int) -> None:
    model, feeds = random_model(seed), random_feeds(seed)
    graph, whole = graph_of(model), exposed(model, feeds)
    weights = {name: graph.constant(name) for name in graph.constants if name.startswith("w") or name == "scale"}
    everything = range(len(graph.nodes))
    got = SegmentEngine(graph).replay(everything, feeds, graph.tensors, weights=weights)
    for name, value in got.items():
        assert not isinstance(value, Unavailable)
        np.testing.assert_allclose(value, whole[name], rtol=1e-3, atol=1e-4)
    poor = SegmentEngine(graph, memory=0).replay(everything, feeds, graph.tensors)
    assert all(same(poor[name], whole[name]) for name in graph.tensors)
