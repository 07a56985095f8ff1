"""Judge runs of fake chips, healthy and faulty, drawn by chance (quality_blocks.py says how), and print what was found.

    python scripts/fault_matrix.py --runs 500                        small nets and the models of models/nets
    python scripts/fault_matrix.py --runs 5000 --models DIR -o records.jsonl --jobs 4      any *.onnx with inputs.npz beside it
    python scripts/fault_matrix.py --held-out --runs 500             the third of models and seeds that nothing is tuned on
    python scripts/fault_matrix.py --read records.jsonl              judge nothing, print the tables

Records are added to the file given; a run that was stopped goes on where it was. Exits with 1 where somebody healthy was named.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import baselines
import quality
import quality_blocks
import quality_table
import subjects
from chip_laws import LAWS

ROOT = Path(__file__).resolve().parents[1]
LAST = ROOT / ".pytest_cache" / "d" / "fault_matrix"


@dataclass(frozen=True)
class Plan:
    """What blocks are drawn from. held_out: nothing was tuned on it, was, or either (None)."""

    seed: int
    models: tuple[Path, ...]
    only: tuple[str, ...]
    precisions: tuple[str, ...]
    held_out: bool | None
    methods: tuple[str, ...]
    faults: int = quality_blocks.FAULTS


@cache  # in each process, and not in the plan, which travels between them
def drawn_from(plan: Plan) -> list[subjects.Subject]:
    """The models of a plan."""
    found = [*subjects.small_subjects(), *(s for folder in plan.models for s in subjects.subjects_in(folder))]
    return [s for s in {s.name: s for s in found}.values() if not plan.only or s.name in plan.only]


def drawn(plan: Plan, number: int) -> tuple[subjects.Subject, quality.Case]:
    """The block of this number. Raises ValueError where there is nothing to draw from."""
    return quality_blocks.draw(number, plan.seed, drawn_from(plan), plan.precisions, held_out=plan.held_out)


def block(plan: Plan, number: int) -> list[quality.Record]:
    """All records of a block."""
    subject, start = drawn(plan, number)
    with tempfile.TemporaryDirectory() as folder:
        bench = quality.Bench(subject, Path(folder))
        return list(quality_blocks.judge_block(number, plan.seed, bench, start, plan.methods, faults=plan.faults))


def blocks(plan: Plan, done: set[int], jobs: int) -> Iterator[list[quality.Record]]:
    """Blocks that are not done yet, without end, as they finish."""
    numbers = (number for number in count() if number not in done)
    if jobs == 1:
        yield from (block(plan, number) for number in numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        pending: set[Future[list[quality.Record]]] = set()
        try:
            while True:
                while len(pending) < jobs + 1:
                    pending.add(pool.submit(block, plan, next(numbers)))
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)
        finally:
            for future in pending:
                future.cancel()


def judge(plan: Plan, runs: int, out: Path | None, jobs: int) -> list[quality.Record]:
    """So many records, those that the file holds already among them."""
    records = quality.load([out]) if out is not None and out.exists() else []
    parts = blocks(plan, {r.block for r in records}, jobs)
    try:
        while len(records) < runs:
            fresh = next(parts)
            records += fresh
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.writelines(quality.line(record) + "\n" for record in fresh)
            print("", *quality_table.failures(fresh), sep="\n", end="", file=sys.stderr)
            print(f"\r{len(records)} of {runs}", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    finally:
        parts.close()
    return records


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=500, help="how many records there shall be")
    parser.add_argument("--models", type=Path, nargs="+", default=[ROOT / "models" / "nets"], metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models and nets alone")
    parser.add_argument("--precision", choices=list(LAWS), nargs="+", default=list(LAWS))
    part = parser.add_mutually_exclusive_group()
    part.add_argument(
        "--held-out", dest="part", action="store_const", const=True, default=False, help="what is held out of tuning alone"
    )
    part.add_argument(
        "--all", dest="part", action="store_const", const=None, help="what is held out of tuning too, reported apart"
    )
    parser.add_argument("--baselines", action="store_true", help="simpler methods on the same runs too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=quality_blocks.FAULTS, help="in a block; 0 for healthy runs alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--out", type=Path, help="records, one JSON object a line; read first, then added to")
    parser.add_argument("--read", type=Path, nargs="+", help="judge nothing, print the tables of these records")
    parser.add_argument("--last", action="store_true", help="judge nothing, print the tables of the last test run")
    parser.add_argument("--block", type=int, nargs="+", help="these blocks alone")
    given = parser.parse_args(arguments)
    methods = tuple(baselines.METHODS) if given.baselines else ()
    plan = Plan(given.seed, tuple(given.models), tuple(given.only), tuple(given.precision), given.part, methods, given.faults)
    if given.last or given.read:
        records = quality.load(sorted(LAST.glob("*.jsonl")) if given.last else given.read)
    else:
        try:
            drawn(plan, 0)
        except ValueError as trouble:
            parser.error(str(trouble))
        chosen = (record for number in given.block or () for record in block(plan, number))
        records = list(chosen) if given.block else judge(plan, given.runs, given.out, given.jobs)
    if not records:
        print("no records", file=sys.stderr)
        return 1
    print("", *quality_table.failures(records), "", quality_table.table(records), sep="\n")
    return int(any(r.outcome in ("wrong", "alarm", "trouble") for r in records))


if __name__ == "__main__":
    sys.exit(main())
