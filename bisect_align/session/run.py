"""One run: from options to a result, written where it was asked for; a partial one where the run was cut short."""

from __future__ import annotations

import time

import numpy as np

from bisect_align.errors import BisectAlignError
from bisect_align.result import files
from bisect_align.result.result import Result
from bisect_align.session.case import prepare
from bisect_align.session.compose import compose, partial
from bisect_align.session.cuts import cut_culprits
from bisect_align.session.hunt import Hunt
from bisect_align.session.options import Options
from bisect_align.session.progress import SILENT, Progress


def run(options: Options, progress: Progress = SILENT) -> Result:
    """Answer one question: which node, and the proof.

    Raises BisectAlignError for what the user can mend. Where a run had begun, a partial result (complete: false) is written to
    options.out first, also on KeyboardInterrupt.
    """
    with np.errstate(all="ignore"):  # Inf and NaN are data here: what they mean is judged, not warned of
        return _run(options, progress)


def _run(options: Options, progress: Progress) -> Result:
    start = time.perf_counter()
    progress.stage("loading")
    case = prepare(options)
    hunt = Hunt(case, progress)
    try:
        hunt.run()
        result, models = cut_culprits(hunt, compose(hunt, time.perf_counter() - start))
    except (KeyboardInterrupt, BisectAlignError) as trouble:
        if options.out is not None:
            why = "interrupted" if isinstance(trouble, KeyboardInterrupt) else str(trouble)
            files.write(partial(hunt, why, time.perf_counter() - start), options.out)
        raise
    if options.out is not None:
        files.write(result, options.out, models)
    return result
