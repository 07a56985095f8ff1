"""README.md of a repro: what the case is, for somebody who has never seen the model. All names are escaped."""

from __future__ import annotations

from collections.abc import Iterator

from bisect_align.judgement.judge import CONVICT
from bisect_align.repro.alone import LESS
from bisect_align.repro.content import Content
from bisect_align.repro.folder import UPCAST
from bisect_align.result.escape import visible
from bisect_align.result.result import Culprit, Figures, Result

_LONGEST = 200


def code(text: object) -> str:
    """A stranger's text as inline code that nothing can break out of."""
    plain = visible(str(text)).replace("`", "'")
    return f"`{plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + '…'}`"


def readme(content: Content, culprit: Culprit, result: Result, trouble: str) -> str:
    """The text. trouble: why the case does not show the failure of the run, "" where it does."""
    return "\n".join(_lines(content, culprit, result, trouble)) + "\n"


def _lines(content: Content, culprit: Culprit, result: Result, trouble: str) -> Iterator[str]:
    yield f"# {visible(', '.join(culprit.region.ops))}: a case of its own"
    yield ""
    if trouble:
        yield f"**NOT REPRODUCED.** This case does not show what the run saw: {visible(trouble)}. Do not report it as it is."
        yield ""
    element = content.outputs[0].element
    yield "## Run it"
    yield ""
    yield "    pip install numpy onnxruntime"
    yield "    python repro.py                              # exit code 1: the target still differs, 0: it agrees, 2: trouble"
    yield "    python repro.py --target-output fixed.npy    # the same with another value of the target"
    yield '    python repro.py --run "run_on_chip {model} {inputs} {outputs}"'
    yield ""
    yield "`{inputs}` is the folder `test_data_set_0`, `{outputs}` an empty folder in which the command leaves `output_0.npy` …"
    yield ""
    yield "## The operator"
    yield ""
    for node in culprit.region.nodes:
        name = f" {code(node.name)}" if node.name else ""
        domain = f" of domain {code(node.domain)}" if node.domain else ""
        yield f"- {code(node.op)}{name}{domain}"
        for key, value in node.attributes.items():
            yield f"  - {code(key)} = {code(value)}"
    yield ""
    if content.context or content.above:
        sides = f"{content.context + content.above} observed tensors above and {content.context} below"
        yield f"With its neighbours, up to {sides}: {len(content.nodes)} nodes."
        yield ""
    for k, given in enumerate(content.inputs):
        yield f"- input {k}: {code(given.name)}, {given.values.dtype} {list(given.values.shape)}, {visible(given.source)}"
    for k, expected in enumerate(content.outputs):
        golden = expected.golden
        yield f"- output {k}: {code(expected.name)}, {golden.dtype} {list(golden.shape)}"
        if expected.target is None:
            yield "  - the dump does not hold the target's value"
        elif expected.target.shape != golden.shape and element is None:
            yield f"  - the target returned the shape {list(expected.target.shape)}"
    yield ""
    for note in content.notes:
        yield f"{visible(note)}"
        yield ""
    yield "## The error"
    yield ""
    kind = str(culprit.kind) if culprit in result.culprits else "no culprit of the run, cut out on request"
    yield f"- {kind}; introduced here, on the target's own inputs: {_figures(culprit.introduced)}"
    noise = culprit.noise
    healthy = f"a healthy {noise.precision} target introduces a relative L2 error of {noise.expected:.3g}"
    yield f"- {healthy}; score {noise.score:.3g}, convicted above {CONVICT:g}"
    if any(e.rule["by"] == "error" for e in content.outputs):
        yield (
            "- the judgement that convicted it looks at more than `repro.py` does: here the target agrees once its error is less "
            f"than {LESS:g} of what it was"
        )
    for symptom in culprit.symptoms:
        yield f"- symptom: {visible(symptom.name)}: {visible(symptom.text)}"
    for guess in culprit.hypotheses:
        yield f"- likely cause: {visible(guess)}"
    yield ""
    yield "## What is in this folder"
    yield ""
    yield "- `model.onnx`: the operator as the model has it, weights inside"
    if content.upcast is not None:
        yield f"- `{UPCAST}`: the same in float32, which makes the golden (half-precision CPU kernels are noisy themselves); its `.npy`"
        yield "  values are float32, the `.pb` ones are rounded to the type of `model.onnx`, which takes these"
        yield "  (with `--run`, the `.npy` ones are float16 too where the model is)"
    yield "- `test_data_set_0/`: inputs and golden outputs, as `.pb` (ONNX backend test) and `.npy`"
    yield "- `target_output_0.npy` …: what the target returned, in the tensor's own layout and unit"
    yield "- `noise_0.npy` …: per element, what rounding explains"
    yield "- `repro.json`: all of this for programs"
    yield ""
    yield "## Where it comes from"
    yield ""
    if result.golden is not None:
        yield f"- model {code(result.golden.model)}, SHA-256 `{result.golden.model_sha256}`"
    if result.target is not None:
        yield f"- dump {code(result.target.dump)}"
    if result.command:
        yield f"- command: {code(' '.join(result.command))}"
    versions = result.environment.get("versions", {})
    yield "- golden: ONNX Runtime on the CPU, optimisations off, one thread; " + ", ".join(
        f"{k} {v}" for k, v in versions.items()
    )


def _figures(figures: Figures) -> str:
    if not figures.elements:
        return "the shapes differ"
    numbers = [("relative L2", figures.rel_l2), ("max abs", figures.max_abs), ("cosine", figures.cosine)]
    text = ", ".join(f"{name} {value:.4g}" for name, value in numbers if value is not None)
    return f"{text}; {figures.mismatched} of {figures.elements} elements are not equal"
