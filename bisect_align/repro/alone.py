"""Does a target compute this case right? Needs numpy and onnxruntime, nothing else.

    python repro.py                            compare the value that the target returned with a golden that is run now
    python repro.py --target-output FILE       compare another value: .npy, or raw values in the golden's type or the model's own
                                               (once an output); flattened ones are read in the golden's shape
    python repro.py --run "CMD {model} {inputs} {outputs}"
                                               run a target first. {inputs}: a folder with input_0.npy, input_0.pb ... in the
                                               model's own types (bfloat16, which numpy has not: float32 in .npy);
                                               {outputs}: an empty folder, where CMD leaves output_0.npy ...
    python repro.py --json                     print the figures as JSON

Exit code: 1 the target still differs, 0 it agrees, 2 trouble.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

DATA = "test_data_set_0"
MANIFEST = "repro.json"
TROUBLE = 2
SHOWN = 5  # worst elements
SLICE_MIN, SLICES_FROM = 8, 32  # elements that a slice, and a tensor, must have before slices say anything
PEAK, SLICE, GAIN = 4.0, 2.0, 2.5  # what a healthy target stays below, in units of what noise explains
LESS = 0.7  # of its old error: between 1 and the half that right rounding leaves of a truncation's
ONE_SIDED, FLIPS = 4.0, 2.5  # standard deviations that no unbiased rounding shows, and how such a bias and a gross flip score


def rms(x: Any) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64)))) if x.size else 0.0


def share(error: float, level: float) -> float:
    return error / level if level > 0 else (0.0 if error == 0 else math.inf)


def judge(golden: Any, target: Any, sigma: Any, rule: dict[str, Any]) -> dict[str, Any]:
    """Figures of one pair of arrays. sigma: what noise explains, per element. rule: the limit and rooms of repro.json.

    score: the largest of several statistics, each over what a healthy target stays below; beyond rule["limit"] the two differ.
    """
    if golden.shape != target.shape:
        text = f"shape {list(target.shape)} instead of {list(golden.shape)}"
        return {"differs": True, "score": math.inf, "statistic": text, "rel_l2": math.inf, "max_abs": math.inf, "worst": []}
    discrete = golden.dtype.kind in "iub"
    with np.errstate(all="ignore"):
        g, t = golden.astype(np.float64), target.astype(np.float64)
        odd = ~((np.isfinite(g) & np.isfinite(t)) | (np.isnan(g) & np.isnan(t)) | (g == t))
        fine = np.isfinite(g) & np.isfinite(t)
        g0, d = np.where(fine, g, 0), np.where(fine, t - g, 0)
        z = np.where(odd, np.inf, np.divide(np.abs(d), sigma, out=np.where(d != 0, np.inf, 0.0), where=sigma > 0))
        scores = _flips(d, sigma, rule) if discrete else _noise(d, g0, sigma, np.where(odd, 0, z), rule)
        if odd.any():
            scores["NaN or Inf"] = math.inf
        error = float(np.mean(g != t)) if discrete and g.size else share(rms(d), rms(g0))
    statistic = max(scores, key=lambda name: scores[name])
    score, limit = scores[statistic], rule["limit"]
    if rule["by"] == "error" and not odd.any():
        statistic, score, limit = "part of the old error", error / rule["error"], LESS
    return {
        "differs": bool(score > limit),
        "score": score,
        "limit": limit,
        "statistic": statistic,
        "rel_l2": share(rms(d), rms(g0)),
        "error": error,
        "max_abs": math.inf if odd.any() else float(np.abs(d).max(initial=0.0)),
        "mismatched": int(np.count_nonzero(d)) + int(np.count_nonzero(odd)),
        "elements": int(g.size),
        "worst": _worst(g, t, d, z, sigma),
    }


def _noise(d: Any, g: Any, sigma: Any, z: Any, rule: dict[str, Any]) -> dict[str, float]:
    size = d.size
    if not size:
        return {"exact": 0.0}
    power = float(np.sum(g * g))
    worst = 0.0
    for axis in range(d.ndim if size >= SLICES_FROM else 0):
        if d.shape[axis] < 2 or size // d.shape[axis] < SLICE_MIN:
            continue
        rest = tuple(i for i in range(d.ndim) if i != axis)
        top, bottom = np.square(d).mean(axis=rest), np.square(sigma).mean(axis=rest)
        ratio = np.sqrt(np.divide(top, bottom, out=np.where(top > 0, np.inf, 0.0), where=bottom > 0))
        worst = max(worst, float(ratio.max()))
    return {
        "energy": rms(z) / (1 + 3 / math.sqrt(size)),
        "peak": float(z.max()) / (PEAK * max(1.0, math.sqrt(math.log(max(size, 2)) / 6.9))),
        "slice": worst / SLICE,
        "gain": share(share(abs(float(np.sum(d * g))), power), rule["gain"]) / GAIN if power > 0 and size > 1 else 0.0,
        "offset": share(abs(float(d.mean())), rule["offset"]) / GAIN if size > 1 else 0.0,
    }


def _flips(d: Any, sigma: Any, rule: dict[str, Any]) -> dict[str, float]:
    gross = np.abs(d) > sigma
    up, down = int(np.count_nonzero(d == 1)), int(np.count_nonzero(d == -1))
    bias = abs(up - down) / math.sqrt(up + down) if rule["rounds"] and up + down else 0.0
    return {
        "flips": max(100 * float(gross.mean()), FLIPS) if gross.any() else 0.0,
        "one-sided rounding": FLIPS * bias / ONE_SIDED if bias >= ONE_SIDED else 0.0,
    }


def _worst(g: Any, t: Any, d: Any, z: Any, sigma: Any) -> list[dict[str, Any]]:
    size = np.where(np.isinf(z) & (d == 0), np.inf, np.abs(d)).reshape(-1)
    order = [int(i) for i in np.argsort(-size, kind="stable")[:SHOWN] if size[int(i)] > 0]
    found = []
    for flat in order:
        at = tuple(int(i) for i in np.unravel_index(flat, g.shape))
        found.append({"index": at, "golden": float(g[at]), "target": float(t[at]), "allowed": float(sigma[at])})
    return found


def aligned(array: Any) -> Any:
    """A copy that starts where ONNX Runtime's own buffers do: elsewhere sums may end in other bits."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def run_golden(folder: Path, manifest: dict[str, Any]) -> list[Any]:
    """What ONNX Runtime computes: CPU, optimisations off, one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    model = str(folder / manifest["golden_model"])
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feeds = {}
    for k, given in enumerate(manifest["inputs"]):
        feeds[given["name"]] = aligned(np.load(str(folder / DATA / f"input_{k}.npy"), allow_pickle=False))
    return list(session.run([made["name"] for made in manifest["outputs"]], feeds))


def read_output(file: Path, like: Any, half: str = "", *, one: bool = False) -> Any:
    """An array from .npy, or `raw` values, `shaped` like the golden, also if it is flattened."""
    values = np.load(str(file), allow_pickle=False) if file.suffix == ".npy" else raw(file, like, half, one=one)
    return shaped(widened(values) if values.dtype.str == "|V2" else values, like, flat=True)


def raw(file: Path, like: Any, half: str = "", *, one: bool = False) -> Any:
    """Raw values in the golden's type, or in the half type that the model has instead: their bytes tell which. one: a single value
    will do. Raises ValueError where they are of neither size."""
    data = file.read_bytes()
    for shape in (like.shape, (1,)) if one else (like.shape,):
        count = math.prod(shape)
        if len(data) == count * like.itemsize:
            return np.frombuffer(data, like.dtype).reshape(shape)
        if half and len(data) == 2 * count:
            values = np.frombuffer(data, np.float16 if half == "float16" else "V2").reshape(shape)
            return values if half == "float16" else widened(values)
    wanted = f"{like.nbytes} ({like.dtype} {list(like.shape)})" + (f" or {2 * like.size} ({half})" if half else "")
    raise ValueError(f"holds {len(data)} bytes, expected {wanted}")


def widened(values: Any) -> Any:
    """bfloat16, which numpy reads as two nameless bytes, as float32."""
    return (np.ascontiguousarray(values).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def shaped(values: Any, like: Any, *, flat: bool = False) -> Any:
    """The values in the golden's shape, where only axes of 1 tell the two apart; flat: or where they are as many in one row."""
    plain = [n for n in values.shape if n != 1] == [n for n in like.shape if n != 1]
    return values.reshape(like.shape) if plain or (flat and values.shape == (like.size,)) else values


def own_inputs(folder: Path, place: Path) -> Path:
    """The folder with the inputs; of a half-precision model a copy at `place`, whose .npy files have the model's own types."""
    given = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["inputs"]
    if not any(entry.get("half") == "float16" for entry in given):
        return folder / DATA
    shutil.copytree(str(folder / DATA), str(place), ignore=shutil.ignore_patterns("output_*"))
    for k, entry in enumerate(given):
        if entry.get("half") == "float16":
            with np.errstate(over="ignore"):
                np.save(str(place / f"input_{k}.npy"), np.load(str(place / f"input_{k}.npy")).astype(np.float16))
    return place


def run_target(command: str, folder: Path, inputs: Path, outputs: Path) -> None:
    """Run the user's command with the three places put in. Raises ValueError where it fails."""
    places = {"{model}": str(folder / "model.onnx"), "{inputs}": str(inputs), "{outputs}": str(outputs)}
    words = shlex.split(command)
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    done = subprocess.run(words, check=False)
    if done.returncode:
        raise ValueError(f"the command ended with exit code {done.returncode}")


def compare(folder: Path, files: list[Path | None]) -> dict[str, Any]:
    """Run the golden and judge the target's outputs. files: one an output, None where the target's is not known."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    found = []
    for k, (golden, made) in enumerate(zip(run_golden(folder, manifest), manifest["outputs"])):  # noqa: B905 (Python 3.9)
        stored = np.load(str(folder / DATA / f"output_{k}.npy"), allow_pickle=False)
        sigma = np.load(str(folder / f"noise_{k}.npy"), allow_pickle=False)
        file = files[k] if k < len(files) else None
        half, one = made.get("half", ""), "element" in made
        try:
            target = None if file is None else read_output(file, golden, half, one=one)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from error
        if "element" in made:  # of a small case, the target's value of one element is known
            place = tuple(slice(i, i + 1) for i in made["element"])
            if target is not None:
                target = target.reshape(sigma.shape) if target.size == 1 else target[place]
            golden, stored = golden[place], stored[place]
        same = golden.shape == stored.shape and golden.dtype == stored.dtype and golden.tobytes() == stored.tobytes()
        agrees = same or not judge(stored, golden, sigma, {**made["rule"], "by": "noise"})["differs"]
        entry = {"name": made["name"], "golden_same_bits": same, "golden_agrees": agrees}
        if "element" in made:
            entry["element"] = made["element"]
        if target is not None:
            entry.update(judge(golden, target, sigma, made["rule"]))
            for bad in entry["worst"] if "element" in made else []:
                bad["index"] = made["element"]
        found.append(entry)
    if not any("differs" in entry for entry in found):
        raise ValueError("there is no target output to compare with")
    return {"differs": any(entry.get("differs") for entry in found), "outputs": found}


def show(report: dict[str, Any]) -> None:
    for entry in report["outputs"]:
        print(f"output {entry['name']!a}")
        if not entry["golden_same_bits"]:
            print("  this onnxruntime ends in other last bits than the golden that is stored; that is within noise")
        if "differs" not in entry:
            print("  the target's value is not known: not compared")
            continue
        print(f"  relative L2 {entry['rel_l2']:.4g}, max abs {entry['max_abs']:.4g}, ", end="")
        print(f"{entry.get('mismatched', '?')} of {entry.get('elements', '?')} elements are not equal")
        print(f"  {entry['statistic']}: {entry['score']:.4g}, a target that agrees stays below {entry.get('limit', 0):.4g}")
        for bad in entry["worst"]:
            print(
                f"  at {list(bad['index'])}: {bad['golden']:.9g} became {bad['target']:.9g} (noise explains {bad['allowed']:.3g})"
            )
    print("the target STILL DIFFERS" if report["differs"] else "the target agrees")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target-output", metavar="FILE", type=Path, action="append", default=[])
    parser.add_argument("--run", metavar="COMMAND")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    folder = Path(__file__).resolve().parent
    try:
        count = len(json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["outputs"])
        with tempfile.TemporaryDirectory() as place:
            files = options.target_output
            if options.run:
                outputs = Path(place) / "outputs"
                outputs.mkdir()
                run_target(options.run, folder, own_inputs(folder, Path(place) / "inputs"), outputs)
                files = [outputs / f"output_{k}.npy" for k in range(count)]
                if not files[0].is_file():
                    raise ValueError("the command left no output_0.npy in {outputs}")
            stored = [folder / f"target_output_{k}.npy" for k in range(count)]
            report = compare(folder, files or [file if file.is_file() else None for file in stored])
        if not all(entry["golden_agrees"] for entry in report["outputs"]):
            raise ValueError(
                "this onnxruntime computes another golden than the one that is stored: use the version in repro.json"
            )
    except Exception as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return TROUBLE
    if options.json:
        print(json.dumps(report))
    else:
        show(report)
    return int(report["differs"])


if __name__ == "__main__":
    raise SystemExit(main())
