"""What a journal says of the engine that it was run on, and the same jobs in virtual time with its delays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from statistics import fmean

from phalanx.bench.engines.mix import MixJob
from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, JobSubmitted
from phalanx.protocol.plan import Plan
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work


def starts_ms(journal: Journal, durations_ms: Mapping[str, int]) -> dict[str, int]:
    """When the first start of each of these jobs was decided."""
    found: dict[str, int] = {}
    for entry in journal.records:
        for action in entry.body.actions if isinstance(entry.body, Plan) else ():
            if isinstance(action, Start) and action.id.job in durations_ms:
                found.setdefault(action.id.job, entry.now)
    return found


def start_delays_ms(journal: Journal, durations_ms: Mapping[str, int]) -> list[int]:
    """How long each start of these jobs took, from its decision to the word that all tasks run."""
    asked: dict[ActionId, int] = {}
    delays = []
    for entry in journal.records:
        if isinstance(entry.body, Plan):
            asked.update((action.id, entry.now) for action in entry.body.actions if isinstance(action, Start))
        elif isinstance(entry.body, Done) and entry.body.action in asked and entry.body.action.job in durations_ms:
            delays.append(entry.now - asked.pop(entry.body.action))
    return delays


def stop_delays_ms(journal: Journal, durations_ms: Mapping[str, int]) -> list[int]:
    """How much longer each job held its devices than it had to run, from the word that it ran to that of its end."""
    began: dict[str, int] = {}
    delays = []
    for entry in journal.records:
        if isinstance(entry.body, Done) and entry.body.action.job in durations_ms:
            began[entry.body.action.job] = entry.now
        elif isinstance(entry.body, AttemptEnded) and entry.body.job in began:
            delays.append(entry.now - began[entry.body.job] - durations_ms[entry.body.job])
    return delays


def durations_of(journal: Journal, jobs: tuple[MixJob, ...]) -> dict[str, int]:
    """How long each job of the mix has to run, by its id."""
    by_name = {job.name: round(1000 * job.duration_s) for job in jobs}
    submitted = (entry.body.job for entry in journal.records if isinstance(entry.body, JobSubmitted))
    return {job.id: by_name[job.name] for job in submitted if job.name in by_name}


def simulate(journal: Journal, durations_ms: Mapping[str, int]) -> Run:
    """The jobs of a journal in virtual time. Of the engine it is told two numbers: its mean delays."""
    start_ms, stop_ms = (
        round(fmean(start_delays_ms(journal, durations_ms))),
        round(fmean(stop_delays_ms(journal, durations_ms))),
    )
    works = {job: Work(max(duration_ms + stop_ms, 1)) for job, duration_ms in durations_ms.items()}
    backend = VirtualBackend(works, replace(NO_COSTS, start_ms=start_ms))
    first = journal.records[0].body
    assert isinstance(first, ClusterDefined)
    submitted = ((entry.now, entry.body) for entry in journal.records if isinstance(entry.body, JobSubmitted))
    arrivals = ((now, event) for now, event in submitted if event.job.id in durations_ms)
    run = Run.of(first.cluster, first.policy, backend, arrivals)
    run.finish()
    return run


def mean_jct_s(state: State, jobs: Iterable[str]) -> float:
    """The mean time of some jobs from submission to end."""
    ended = (state.jobs[job] for job in jobs)
    return fmean((each.ended_ms or 0) - each.submitted_ms for each in ended) / 1000


def kendall_tau(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Kendall's tau-b of two orders: 1 is the same order, -1 the reverse. Of equals neither order counts."""
    agree = ties_one = ties_other = pairs = 0
    for left, right in combinations(sorted(one), 2):
        a, b = _sign(one[left] - one[right]), _sign(other[left] - other[right])
        pairs += 1
        agree += a * b
        ties_one += a == 0
        ties_other += b == 0
    scale = ((pairs - ties_one) * (pairs - ties_other)) ** 0.5
    return agree / scale if scale else 1.0


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
