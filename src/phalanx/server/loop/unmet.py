"""Jobs whose dependencies can never be met: they are cancelled with the reason, unless they are to be kept."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.protocol.event import JobCancelled
from phalanx.workload.job import After, Dependency

MET_BY = {After.SUCCESS: JobState.SUCCEEDED, After.FAILURE: JobState.FAILED}
"""How another job must end, for those dependencies that an end can leave unmet."""


def cancellations(state: State, jobs: Iterable[str]) -> list[JobCancelled]:
    """What ends those of some jobs whose dependencies can never be met."""
    found = ((job, _unmet(state, job)) for job in jobs)
    return [JobCancelled(job, _reason(state, unmet)) for job, unmet in found if unmet is not None]


def _unmet(state: State, job: str) -> Dependency | None:
    """The first dependency of a pending job that was not met and that it is to be cancelled for."""
    record = state.jobs[job]
    if record.final is not None or record.attempt is not None:
        return None
    for each in record.job.after:
        final = state.jobs[each.job].final
        if not each.keep and final is not None and each.on in MET_BY and final is not MET_BY[each.on]:
            return each
    return None


def _reason(state: State, unmet: Dependency) -> str:
    final = state.jobs[unmet.job].final
    assert final is not None
    return f"dependency not met: job {unmet.job} {_ended(final)}, expected {unmet.on.value}"


def _ended(final: JobState) -> str:
    return "was cancelled" if final is JobState.CANCELLED else final.value
