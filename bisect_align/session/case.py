"""Everything a run starts from: model, dump, inputs and claims, loaded and checked against each other."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from bisect_align.dumps.catalogue import catalogue
from bisect_align.dumps.convention import AUTO
from bisect_align.dumps.convention import load as load_convention
from bisect_align.dumps.entry import Catalogue, Entry
from bisect_align.errors import EngineError, MatchError, ModelError, UsageError
from bisect_align.golden.protocol import Unavailable
from bisect_align.golden.segments import SegmentEngine
from bisect_align.judgement.policy import Policy
from bisect_align.judgement.precision import given
from bisect_align.matching.claims import Claims, claim
from bisect_align.metrics.measure import measure
from bisect_align.model.graph import Graph
from bisect_align.model.load import Model, load
from bisect_align.model.settled import settled_by_shapes
from bisect_align.session.codes import with_codes
from bisect_align.session.inputs import Inputs, load_inputs
from bisect_align.session.mapfile import read_map
from bisect_align.session.options import Options
from bisect_align.session.quant import with_parameters
from bisect_align.session.twins import twins_apart
from bisect_align.session.wrong_input import InputCheck, check_inputs

Array: TypeAlias = NDArray[Any]

DEFAULT_MEMORY = 2 << 30  # where the machine does not say how much is free
CACHE_SHARE = 4  # loaded dump tensors get this part of the memory, sessions and live values the rest


@dataclass(slots=True)
class Case:
    """One run's material. warnings: what the user should know, in the order it was found."""

    options: Options
    policy: Policy
    model: Model
    catalogue: Catalogue
    entries: dict[str, Entry]
    claims: Claims
    inputs: Inputs
    engine: SegmentEngine
    memory: int
    checks: list[InputCheck] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def unseen_inputs(self) -> dict[str, Array]:
        """Inputs given from elsewhere, of which the dump holds no copy to compare them with."""
        if self.inputs.own:
            return {}
        checked = {check.tensor for check in self.checks}
        return {name: value for name, value in self.inputs.values.items() if name not in checked}


def listed(options: Options, dump: Path) -> Catalogue:
    """The entries of a dump, read by the rules and for the sample that the user asked for. Raises DumpError."""
    convention = None if options.convention == AUTO else load_convention(options.convention)
    return catalogue(dump, convention, options.sample)


def prepare(options: Options) -> Case:
    """Load and check; raises a BisectAlignError that names what is wrong."""
    policy = Policy(options.policy, dict(options.thresholds))
    given(options.precision)  # the word is checked before the work
    if options.sample < 0:
        raise UsageError(f"{options.sample} is no sample", where="--sample", hint="they are counted from 0")
    model = load(options.quantized_model or options.model)
    found = listed(options, options.target_dump)
    found, said = with_parameters(found, options.quant_params) if options.quant_params else (found, [])
    found, coded = with_codes(found, model.graph)
    mapping = read_map(options.map) if options.map else None
    inputs = load_inputs(options.inputs, model.graph, found, options.model)
    overridden = {n: v for n, v in inputs.values.items() if n in model.graph.overridable}
    if overridden:
        model = replace(model, graph=model.graph.with_constants(overridden))
    try:
        claims = claim(found.entries, model.graph, mapping, found.rewrites)
    except MatchError as error:
        raise MatchError(error.what, where=error.where or str(options.map), hint=error.hint) from None
    memory = options.memory if options.memory is not None else free_memory() // 4
    engine = SegmentEngine(model.graph, memory=memory - memory // CACHE_SHARE)
    model = replace(model, graph=_settled(model.graph, engine, inputs.values))
    case = Case(options, policy, model, found, {e.key: e for e in found.entries}, claims, inputs, engine, memory)
    case.warnings += [*model.warnings, *found.notes, *said, *coded, *inputs.warnings]
    if options.quantized_model:
        original = load(options.model)
        case.warnings += [*quantisation_loss(case, original), *twins_apart(original.graph, model.graph)]
    case.checks += check_inputs(inputs.values, claims, case.entries, case.warnings)
    return case


def _settled(graph: Graph, engine: SegmentEngine, inputs: Mapping[str, Array]) -> Graph:
    """The graph with the shape values that follow from the shapes of these inputs alone; one pass over what lends its shape."""
    names = settled_by_shapes(graph)
    if not names:
        return graph
    try:
        made = dict(engine.stream(inputs, names))
    except EngineError:  # the golden pass says which node ONNX Runtime refuses, and keeps what was found until then
        return graph
    return engine.settle({n: v for n, v in made.items() if not isinstance(v, Unavailable) and v.dtype.kind in "biuf"})


def quantisation_loss(case: Case, original: Model) -> list[str]:
    """What quantisation alone does to the outputs, in one sentence each. Raises ModelError where the twins share no output."""
    outputs = [o for o in original.graph.outputs if o in case.model.graph.outputs]
    if not outputs or set(original.graph.inputs) != set(case.model.graph.inputs):
        raise ModelError(
            "has other inputs or outputs than the model",
            where=str(case.options.quantized_model),
            hint="is it the twin of that model?",
        )
    plain = dict(SegmentEngine(original.graph, memory=case.memory // 2).stream(case.inputs.values, outputs))
    twin = dict(case.engine.stream(case.inputs.values, outputs))
    said = []
    for name in outputs:
        a, b = plain[name], twin[name]
        if not isinstance(a, Unavailable) and not isinstance(b, Unavailable) and a.shape == b.shape:
            loss = measure(a, b).rel_l2
            if loss is not None:
                said.append(
                    f"quantisation alone moves output {name!r} by {100 * loss:.3g} % (relative L2); regions are judged on the twin"
                )
    return said


def nothing_matched(case: Case, dropped: Mapping[str, str] | None = None) -> MatchError:
    """The error that shows names of both sides, nearest first. dropped: entries whose names fit and whose values do not, and why."""
    if dropped:
        entry, why = next(iter(dropped.items()))
        return MatchError(
            f"no entry can be taken for a tensor of the model: {entry!r} {why}",
            where=str(case.options.target_dump),
            hint="is it the right model, and the right inputs?",
        )
    tensors = case.model.graph.tensors
    if not tensors:
        return MatchError(
            "the model computes nothing: it has no nodes, or only constants",
            where=str(case.options.model),
            hint="is it the right model?",
        )
    names = [e.names[0] for e in case.catalogue.entries if e.key not in case.claims.ignored][:200]
    if not names:
        return MatchError(
            "the map ignores every entry of the dump",
            where=str(case.options.map),
            hint="take out lines with an empty tensor name",
        )
    pairs = []
    for name in names:
        near = difflib.get_close_matches(name, tensors[:2000], 1, 0.3)
        if near:
            pairs.append((difflib.SequenceMatcher(None, name, near[0]).ratio(), f"{name!r} ~ {near[0]!r}"))
    nearest = "; ".join(text for _, text in sorted(pairs, reverse=True)[:3])
    example = f"nearest: {nearest}" if nearest else f"the dump has {names[0]!r}, the model {tensors[0]!r}"
    return MatchError(
        f"none of the {len(case.catalogue.entries)} entries is named like a tensor of the model",
        where=str(case.options.target_dump),
        hint=f"{example}; is it the right model? name them with --map",
    )


def free_memory() -> int:
    """Bytes of memory that are free now."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return DEFAULT_MEMORY
