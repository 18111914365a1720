"""A run over time, in as many steps as a chart has room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.simulate.figures.result import Result

STEPS = 200
SERIES = ("allocated", "waiting_jobs", "waiting_gpus")


def over_time(results: Sequence[Result]) -> dict[str, Any]:
    """Series of all runs on one axis of time; None where a run is over."""
    end_s = max((_end_s(result) for result in results), default=0.0)
    step_s = end_s / STEPS
    return {
        "step_s": step_s,
        "series": [
            {
                "policy": str(result.summary["policy"]),
                **{name: _sampled(result, getattr(result.timeline, name), step_s) for name in SERIES},
            }
            for result in results
        ],
    }


def _end_s(result: Result) -> float:
    timeline = result.timeline
    return timeline.end_s or (timeline.at_s[-1] if timeline.at_s else 0.0)


def _sampled(result: Result, values: Sequence[float], step_s: float) -> list[float | None]:
    """The mean of each step: of every stretch as much as lies in it."""
    starts, last_s = result.timeline.at_s, _end_s(result)
    if not starts or step_s <= 0:
        return []
    ends = [*starts[1:], last_s]
    sampled: list[float | None] = []
    at = 0
    for step in range(STEPS):
        from_s, to_s = step * step_s, min((step + 1) * step_s, last_s)
        summed = covered = 0.0
        while at < len(starts) and starts[at] < to_s:
            part = min(ends[at], to_s) - max(starts[at], from_s)
            if part > 0:
                summed, covered = summed + values[at] * part, covered + part
            if ends[at] > to_s:
                break
            at += 1
        sampled.append(round(summed / covered, 4) if covered else None)
    return sampled
