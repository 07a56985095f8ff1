"""Each culprit as a model of its own, so that it can be run, looked at and sent to the people who wrote the kernel."""

from __future__ import annotations

from dataclasses import replace

from bisect_align.errors import BisectAlignError
from bisect_align.model.cut import cut
from bisect_align.model.infer import TensorType
from bisect_align.result.result import Result
from bisect_align.session.hunt import Hunt

CUTS = 8  # culprits that are cut out


def cut_culprits(hunt: Hunt, result: Result) -> tuple[Result, dict[str, bytes]]:
    """The result naming a model for each of the first culprits, and those models by file name.

    A region that cannot be cut (types of custom operators, weights beyond 2 GB) is left without one, with a warning.
    """
    files: dict[str, bytes] = {}
    culprits = list(result.culprits)
    warnings = list(result.warnings)
    observations = hunt.evidence.observations if culprits else None
    for at, culprit in enumerate(culprits[:CUTS]):
        area = hunt.findings.rulings[culprit.region.output].judged.region
        known = {}
        for name in (*area.boundary, area.output):
            if observations is not None and name in observations:
                value = observations.value(name)
                known[name] = TensorType(value.dtype, value.shape)
        try:
            model = cut(hunt.case.model.path, hunt.case.model.graph, area, types=known)
            content = model.SerializeToString()
        except (BisectAlignError, ValueError) as trouble:
            warnings.append(f"no model was cut for {culprit.region.output!r}: {trouble}")
            continue
        name = f"culprit-{at + 1}.onnx"
        files[name] = content
        culprits[at] = replace(culprit, repro=name)
    return replace(result, culprits=tuple(culprits), warnings=tuple(warnings)), files
