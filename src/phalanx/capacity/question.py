"""What is asked of the planner, as people write it: numbers of nodes, draws, and figures that are of some job."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.capacity.demand import LARGE_GAP, gap_ms
from phalanx.capacity.target import Figure, NoSuchJobsError
from phalanx.simulate.studies.source import Recorded
from phalanx.simulate.studies.study import Study
from phalanx.simulate.studies.table import duration_text
from phalanx.simulate.studies.vary import NODES, Variation

JOBS_MANY = 20
"""Of fewer jobs any gap is large."""


def numbers_of(text: str | None) -> tuple[int, ...]:
    """The numbers of nodes that `--nodes` names."""
    if text is None:
        return ()
    span = text if ":" in text else f"{text}:{text}"
    return tuple(int(value) for value in Variation.parse(f"{NODES}={span}").values)


def draws_of(study: Study, seeds: int) -> tuple[int, list[str]]:
    """How many draws there can be, and what to say of it: arrivals that are all at once cannot be drawn anew."""
    if not isinstance(study.source, Recorded):
        return seeds, []
    longest_ms, span_ms = gap_ms(study.source.trace)
    if not span_ms:
        return 1, ["all jobs are submitted at once: there is one draw of that, and no interval"]
    if longest_ms > LARGE_GAP * span_ms and len(study.source.trace.jobs) >= JOBS_MANY:
        gap, span = duration_text(longest_ms / 1000), duration_text(span_ms / 1000)
        return seeds, [
            f"the trace has no submission for {gap} of {span}: the load before and after is higher than its mean"
        ]
    return seeds, []


def check_jobs(study: Study, figures: Sequence[Figure]) -> None:
    """Finds out before hours of runs that a figure is of no job."""
    if not isinstance(study.source, Recorded):
        return
    jobs = study.source.trace.jobs
    for figure in figures:
        if not any(figure.is_of(max(job.gpus, job.max_gpus), job.queue) for job in jobs):
            sizes = ", ".join(map(str, sorted({job.gpus for job in jobs})[:20]))
            queues = ", ".join(sorted({job.queue for job in jobs})[:20])
            raise NoSuchJobsError(f"{figure}: no job of the trace is one of these; GPUs: {sizes}; queues: {queues}")
