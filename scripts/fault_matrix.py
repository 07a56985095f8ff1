"""Judge the whole fault matrix (tests/quality/matrix.py says what it is) and print the score by kind, graph and law.

    python scripts/fault_matrix.py                    everything, one process a core
    python scripts/fault_matrix.py --every 7          what the test suite judges
    python scripts/fault_matrix.py --graph attention --precision fp16 --save records.jsonl
    python scripts/fault_matrix.py --read records.jsonl
    python scripts/fault_matrix.py --last             the records that the last test run left

Exits with 1 where a fault was laid at another node's door, a healthy run was accused, or less than 98 % were found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "quality"))

import fake_chip  # noqa: E402
import graphs  # noqa: E402
import matrix  # noqa: E402

LAST = ROOT / ".pytest_cache" / "d" / "fault_matrix"


def judge_part(graph: str, precision: str, every: int, seeds: int) -> matrix.Score:
    """All records of one graph in one precision."""
    with tempfile.TemporaryDirectory() as folder:
        bench = matrix.Bench(graph, Path(folder))
        planted = matrix.score(bench, islice(bench.planted(precision), 0, None, every))
        healthy = matrix.score(bench, bench.healthy(precision, range(seeds)))
        return matrix.Score(planted.records + healthy.records)


def judge_all(parts: Sequence[tuple[str, str]], every: int, seeds: int, jobs: int) -> matrix.Score:
    """The parts side by side; the order of the records does not depend on which ends first."""
    with ProcessPoolExecutor(jobs) as pool:
        pending = {pool.submit(judge_part, graph, precision, every, seeds): (graph, precision) for graph, precision in parts}
        done = {}
        for future in as_completed(pending):
            graph, precision = pending[future]
            done[graph, precision] = future.result()
            print(f"{graph} {precision}: {len(future.result().records)} runs", file=sys.stderr, flush=True)
    return matrix.Score(tuple(record for part in parts for record in done[part].records))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", choices=list(graphs.GRAPHS), action="append")
    parser.add_argument("--precision", choices=list(fake_chip.LAWS), action="append")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="every K-th candidate only")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the healthy runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--save", type=Path, help="write the records, one JSON object a line")
    parser.add_argument("--read", type=Path, nargs="+", help="judge nothing, print the table of these records")
    parser.add_argument("--last", action="store_true", help="judge nothing, print the table of the last test run")
    given = parser.parse_args(arguments)
    if given.last or given.read:
        score = matrix.load(LAST.glob("*.jsonl") if given.last else given.read)
    else:
        parts = list(product(given.graph or graphs.GRAPHS, given.precision or fake_chip.LAWS))
        score = judge_all(parts, given.every, given.seeds, given.jobs)
    if not score.records:
        print("no records", file=sys.stderr)
        return 1
    if given.save:
        matrix.save(score, given.save)
    print(score.table())
    print(*score.failures(), sep="\n")
    return int(score.counts["wrong"] > 0 or score.counts["alarm"] > 0 or score.right < 0.98)


if __name__ == "__main__":
    sys.exit(main())
