"""Other jobs: by name where they may be known, else by their queue and size."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.engine.why.change import Other
from phalanx.words.phrases import counted, listed, moment


def name_of(other: Other | None) -> str:
    """A job, as far as it may be known."""
    if other is None:
        return "another job"
    return f"job {other.job}" if other.job else a_job_of(other.queue)


def names_of(others: tuple[Other, ...]) -> str:
    """Jobs, as far as they may be known."""
    named = tuple(other.job for other in others if other.job)
    hidden = tuple(a_job_of(other.queue) for other in others if not other.job)
    jobs = f"{'job' if len(named) == 1 else 'jobs'} {listed(named)}" if named else ""
    return " and ".join(filter(None, (jobs, listed(hidden)))) or "another job"


def a_job_of(queue: str) -> str:
    """A job of which nothing else may be known."""
    return f"a job of queue {queue}"


def with_size(other: Other) -> str:
    """A job with its queue and its GPUs."""
    name = f"job {other.job}" if other.job else "a job"
    return f"{name} of queue {other.queue} ({counted(other.gpus, 'GPU')})"


def by_queue(others: tuple[Other, ...]) -> str:
    """Jobs by queue: "3 jobs of queue b (12 GPUs)"."""
    queues: dict[str, list[Other]] = {}
    for other in others:
        queues.setdefault(other.queue, []).append(other)
    return " and ".join(_of_queue(queue, group) for queue, group in queues.items())


def _of_queue(queue: str, others: list[Other]) -> str:
    """Jobs of one queue: by name where they may be known, else by number."""
    named = tuple(other.job for other in others if other.job)
    gpus = counted(sum(other.gpus for other in others), "GPU")
    jobs = f"{'job' if len(named) == 1 else 'jobs'} {listed(named)}" if named else counted(len(others), "job")
    return f"{jobs} of queue {queue} ({gpus})"


def leaving_words(others: Sequence[Other], now_ms: int) -> str:
    """Jobs that would have to leave, with what each has and when it would end by itself."""

    def told(each: Other) -> str:
        ends = f", ends {moment(each.expected_end_ms, now_ms)}" if each.expected_end_ms is not None else ""
        name = f"job {each.job}" if each.job else "a job"
        return f"{name} of queue {each.queue} ({counted(each.gpus, 'GPU')}{ends})"

    return listed(tuple(told(each) for each in others))


class Everything:
    """For users that may know the jobs of all queues."""

    def __contains__(self, queue: object) -> bool:
        return True
