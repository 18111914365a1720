"""Arrivals drawn anew: other traces that could as well have been recorded, for as many runs as are wanted."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise
from random import Random

from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.load import moved, span_ms


def redrawn(trace: Trace, seed: int) -> Trace:
    """The same jobs in the same order, with the times between submissions drawn anew; equal seeds draw alike.

    Times are drawn with replacement in runs of neighbours (the circular block bootstrap of Politis and Romano, 1992),
    as long as the cube root of their number, so that jobs that came in bursts mostly still do. They are then stretched
    to the span of the trace: its offered load stays.
    """
    span = span_ms(trace)
    if not span:
        raise TraceError(trace.name, "cannot be drawn anew: all its jobs are submitted at once")
    gaps = [later.submit_ms - earlier.submit_ms for earlier, later in pairwise(trace.jobs)]
    rng = Random(seed)
    drawn = _blocks(gaps, rng)
    while not any(drawn):
        drawn = _blocks(gaps, rng)
    first_ms, total = trace.jobs[0].submit_ms, sum(drawn)
    times = (first_ms + since * span // total for since in accumulate(drawn, initial=0))
    return replace(trace, jobs=tuple(map(moved, trace.jobs, times)))


def _blocks(gaps: list[int], rng: Random) -> list[int]:
    length = max(1, round(len(gaps) ** (1 / 3)))
    around = gaps + gaps[: length - 1]
    drawn: list[int] = []
    while len(drawn) < len(gaps):
        start = rng.randrange(len(gaps))
        drawn.extend(around[start : start + length])
    return drawn[: len(gaps)]
