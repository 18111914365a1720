"""What would have saved time or work of a job: another interval of checkpoints, a spare node, another queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from phalanx.server.postmortem.causes import Ending
from phalanx.server.postmortem.history import History
from phalanx.simulate.studies.table import duration_text

MINUTE_MS = 60_000
INTERVALS_MS = tuple(minutes * MINUTE_MS for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 240))
WAIT_LEAST_MS = MINUTE_MS
MOST_OF = 0.5
"""A queue is named that had room of its own for at least this part of the longest wait."""

Series = Sequence[tuple[int, float, float]]
"""At a moment: the GPUs that a queue used and those that were nominally its own."""


class Interval(NamedTuple):
    """What would have been lost, and spent on saving, had the job saved its work so often."""

    interval_ms: int
    lost_ms: int
    lost_gpu_ms: int
    saving_ms: int


class Remedy(NamedTuple):
    """Something that would have saved time or work: what kind, how much, and in words."""

    kind: str
    saves_ms: int
    saves_gpu_ms: int
    text: str


def intervals(history: History) -> list[Interval]:
    """What checkpoints at other intervals would have cost and saved; none where no work was lost."""
    if not any(each["lost_ms"] for each in history.attempts):
        return []
    return [_at(history, each) for each in INTERVALS_MS]


def _at(history: History, interval_ms: int) -> Interval:
    """An attempt that saves at every multiple loses what it ran since the last, and never more than it did."""
    lost_ms = lost_gpu_ms = saving_ms = 0
    for attempt in history.attempts:
        ran_ms, did_ms = history.ran_ms(attempt), attempt["lost_ms"] or 0
        saving_ms += ran_ms // interval_ms * history.saving.cost_ms
        lost = min(ran_ms % interval_ms, did_ms)
        lost_ms += lost
        lost_gpu_ms += (attempt["lost_gpu_ms"] or 0) * lost // did_ms if did_ms else 0
    return Interval(interval_ms, lost_ms, lost_gpu_ms, saving_ms)


def remedies(
    history: History, found: Sequence[Ending], tried: Sequence[Interval], queues: Mapping[str, Series]
) -> list[Remedy]:
    """All that would have helped, what saves the most time first."""
    told = [_by_interval(history, tried), _by_spare(history, found), _by_queue(history, queues)]
    return sorted((each for each in told if each is not None), key=lambda each: -each.saves_ms)


def _by_interval(history: History, tried: Sequence[Interval]) -> Remedy | None:
    if not tried:
        return None
    did_ms = sum(each["lost_ms"] or 0 for each in history.attempts)
    did_gpu_ms = sum(each["lost_gpu_ms"] or 0 for each in history.attempts)
    spent_ms = history.saves * history.saving.cost_ms
    best = min(tried, key=lambda each: (each.lost_ms + each.saving_ms, -each.interval_ms))
    saves_ms = did_ms + spent_ms - best.lost_ms - best.saving_ms
    if saves_ms <= 0:
        return None
    cost = (
        f"with {duration_text(best.saving_ms / 1000)} spent on saving"
        if history.saving.cost_ms
        else "if saving costs nothing: the job does not say what it costs"
    )
    text = (
        f"saving every {duration_text(best.interval_ms / 1000)}: {duration_text(best.lost_ms / 1000)} of work lost "
        f"instead of {duration_text(did_ms / 1000)}, {cost}"
    )
    return Remedy("checkpoint", saves_ms, did_gpu_ms - best.lost_gpu_ms, text)


def _by_spare(history: History, found: Sequence[Ending]) -> Remedy | None:
    """A spare node: the job would not have been queued again after each failure of one of its nodes."""
    failed = {each.attempt: each for each in found if each.kind == "hardware"}
    waited_ms = sum(
        (history.now_ms if segment["end_ms"] is None else segment["end_ms"]) - segment["start_ms"]
        for segment in history.segments
        if segment["state"] == "queued" and segment["attempt"] - 1 in failed
    )
    if waited_ms < WAIT_LEAST_MS:
        return None
    nodes = ", ".join(dict.fromkeys(each.node for each in failed.values()))
    text = f"a spare node: it was queued for {duration_text(waited_ms / 1000)} after {nodes} failed"
    return Remedy("spare", waited_ms, 0, text)


def longest_wait(history: History) -> tuple[int, int] | None:
    """From when to when the job was queued for the longest; None if that was not long."""
    waits = [
        (segment["start_ms"], history.now_ms if segment["end_ms"] is None else segment["end_ms"])
        for segment in history.segments
        if segment["state"] == "queued"
    ]
    longest = max(waits, key=lambda wait: wait[1] - wait[0], default=None)
    return longest if longest is not None and longest[1] - longest[0] >= WAIT_LEAST_MS else None


def _by_queue(history: History, queues: Mapping[str, Series]) -> Remedy | None:
    """The queue that had room of its own for the job for most of its longest wait."""
    wait = longest_wait(history)
    if wait is None:
        return None
    gpus = history.job["gpus"]
    parts = {
        queue: sum(1 for _, used, own in series if own - used >= gpus) / len(series)
        for queue, series in queues.items()
        if series
    }
    best = max(parts, key=lambda queue: (parts[queue], queue), default=None)
    if best is None or parts[best] < MOST_OF:
        return None
    length_ms = wait[1] - wait[0]
    text = (
        f"the queue {best}: during {parts[best]:.0%} of the {duration_text(length_ms / 1000)} that it was queued, "
        f"{gpus} GPUs that are nominally that queue's own were not used"
    )
    return Remedy("queue", round(parts[best] * length_ms), 0, text)
