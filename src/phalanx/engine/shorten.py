"""Shortening: the State with few in line behind one job, for looking ahead of that job."""

from __future__ import annotations

from phalanx.engine.heads import queue_key
from phalanx.engine.records import WaitingClass
from phalanx.engine.state import State
from phalanx.policy.policy import Key


def shorten(state: State, job: str, behind: int) -> None:
    """Takes all out of the line but those before a job and so many behind it. They do not come back."""
    places = sorted(_places(state))
    last = next((at for at, (_, each, _) in enumerate(places) if each == job), 0) + behind
    gone: dict[int, list[str]] = {}
    for _, each, number in places[last + 1 :]:
        gone.setdefault(number, []).append(each)
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
                queues[queue] = queue_key(state, queue)
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
    if state.reserves:
        waiting.lengths_ms = sorted(state.jobs[job].estimate_ms for _, job in waiting.jobs)
