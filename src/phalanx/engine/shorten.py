"""Shortening: the State with nobody in line but the first so many, for looking ahead of one of those."""

from __future__ import annotations

from phalanx.engine.records import WaitingClass, estimate_ms
from phalanx.engine.state import State
from phalanx.policy.policy import Key, Reserve


def shorten(state: State, length: int) -> None:
    """Takes all out of the line but the first, who are placed before them. They do not come back."""
    places = sorted(_places(state))[length:]
    gone: dict[int, list[str]] = {}
    for _, job, number in places:
        gone.setdefault(number, []).append(job)
    for number, waiting in list(enumerate(state.classes.values())):
        if number in gone:
            _take_out(state, waiting, gone[number])
    for shape in [shape for shape, waiting in state.classes.items() if not waiting.jobs]:
        del state.classes[shape]


def _places(state: State) -> list[tuple[Key, str, int]]:
    """Everybody in line with the key of their queue before their own, and the number of their class."""
    queues: dict[str, Key] = {}
    found = []
    for number, waiting in enumerate(state.classes.values()):
        for key, job in waiting.jobs:
            queue = state.jobs[job].job.queue
            if queue not in queues:
                queues[queue] = state.policy.queue_order(queue, state.usage(queue), state)
            found.append(((*queues[queue], *key), job, number))
    return found


def _take_out(state: State, waiting: WaitingClass, jobs: list[str]) -> None:
    leaving = dict.fromkeys(jobs)
    waiting.jobs = [(key, job) for key, job in waiting.jobs if job not in leaving]
    for job in jobs:
        record = state.jobs[job]
        record.queued, record.held = None, True
        state.in_line -= 1
        state.in_line_gpus -= record.gpus
    if state.policy.reserve is not Reserve.NOBODY:
        waiting.lengths_ms = sorted(estimate_ms(state.jobs[job].job) for _, job in waiting.jobs)
