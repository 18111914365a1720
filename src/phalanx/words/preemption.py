"""The job for which a job is preempted."""

from __future__ import annotations

from collections.abc import Container

from phalanx.engine.state.records import StopReason
from phalanx.engine.state.state import State
from phalanx.engine.why.change import Other
from phalanx.words.others import Everything, with_size


def preempted_words(state: State, job: str, visible_queues: Container[str] = Everything()) -> str:
    """For which job a job is preempted, or how often it was and for which last, as far as is known; or empty.

    Of a job of another queue than the visible ones, the queue and the number of GPUs are told.
    """
    record = state.record(job)
    attempt, other = record.attempt, state.jobs.get(record.preempted_for)
    preemptor = ""
    if other is not None:
        preemptor = with_size(
            Other(other.job.id if other.job.queue in visible_queues else "", other.job.queue, other.gpus)
        )
    if attempt is not None and attempt.stop_reason is StopReason.PREEMPTED:
        return f"it makes room for {preemptor or 'others'}"
    if not record.preemptions:
        return ""
    times = "once" if record.preemptions == 1 else f"{record.preemptions} times, last"
    words = f"{times} for {preemptor}" if preemptor else times.removesuffix(", last")
    if record.kept is None:
        return words
    node = state.topology.nodes[record.kept.booking.node].name
    return f"{words}; what it has done is kept in the memory of {node}"
