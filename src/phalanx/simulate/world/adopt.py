"""Adopting: a virtual world that goes on from a State, with whatever is under way there."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappush

from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State
from phalanx.protocol.action import Action, Repartition, Resize, Resume, Start, Stop, Suspend
from phalanx.protocol.event import AttemptEnded, Done, Event, Outcome
from phalanx.simulate.world.costs import Costs
from phalanx.simulate.world.life import Life
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work

RUNS = (Phase.RUNNING, Phase.RESIZING)


def adopted(state: State, works: Mapping[str, Work], costs: Costs) -> VirtualBackend:
    """A backend in which every attempt of the State is as far as it has come; what was asked for is answered."""
    backend = VirtualBackend(works, costs, term=state.term)
    for attempt in state.attempts():
        if attempt.phase is not Phase.CLAIMED or attempt.in_flight:
            _adopt(state, backend, attempt)
    for job in state.kept:
        record = state.jobs[job]
        if record.attempt is None and record.kept is not None:
            newest = (record.kept.attempt, record.kept.next_seq - 1)
            backend.lives[job] = Life(record.executed_before_ms, newest=newest, host_mb=record.kept.device_memory_mb)
    return backend


def _adopt(state: State, backend: VirtualBackend, attempt: AttemptRecord) -> None:
    job, now = attempt.job.id, state.now
    newest = (attempt.number, max(attempt.in_flight, default=attempt.next_seq - 1))
    life = Life(done_ms=state.jobs[job].executed_ms(now), newest=newest)
    backend.lives[job] = life
    if attempt.phase is not Phase.CLAIMED:
        life.placement, life.held_since_ms = attempt.placement, now
        backend.ledger.hold(attempt.placement)
    asked = attempt.in_flight.get(newest[1])
    if asked is not None:
        _go_on(backend, life, asked, attempt, now)
    elif attempt.phase in RUNS:
        _run_on(backend, life, attempt, now)


def _go_on(backend: VirtualBackend, life: Life, asked: Action, attempt: AttemptRecord, now: int) -> None:
    """What the newest action asks for will be done after its usual time, counted from when it is known to be asked."""
    costs = backend.costs
    match asked:
        case Start(placement=placement):
            life.next = placement
            delay_ms = max(attempt.created_ms + costs.start_ms - now, 0)
        case Resize(placement=placement):
            life.next = placement
            delay_ms = costs.resize_ms
        case Resume():
            life.next = attempt.placement
            delay_ms = 0
        case Suspend(host_mb=memory_mb) if memory_mb:
            life.leaving, life.host_mb = True, memory_mb
            delay_ms = 0
        case Stop(grace_ms=grace_ms):
            life.leaving = True
            delay_ms = min(costs.checkpoint_ms + costs.stop_ms, grace_ms)
        case Repartition():
            delay_ms = costs.repartition_ms
        case _:
            delay_ms = 0
    _due(backend, now + delay_ms, Done(asked.id))


def _run_on(backend: VirtualBackend, life: Life, attempt: AttemptRecord, now: int) -> None:
    life.since_ms, life.speed, life.version = now, 1.0, 1
    work = backend.works.get(attempt.job.id)
    if work is not None and work.duration_ms is not None:
        left_ms = max(round(work.duration_ms - life.done_ms), 0)
        ended = AttemptEnded(attempt.job.id, attempt.number, Outcome.SUCCEEDED)
        _due(backend, now + left_ms, ended, life.version)


def _due(backend: VirtualBackend, at_ms: int, event: Event, version: int = -1) -> None:
    heappush(backend.due, (at_ms, backend.count, event, version))
    backend.count += 1
