"""Which jobs waited: jobs by their queue, and by how many GPUs they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Any, TypeVar

from phalanx.engine.state.records import JobState
from phalanx.simulate.figures.result import JobResult
from phalanx.simulate.figures.spread import percentile
from phalanx.simulate.report.chart import SPREAD_HEADER, Chart, Grid, Labelled, axis, layout, share_axis, spread_row
from phalanx.simulate.report.clock import LEAST_S, Unit, log_axis, unit_for
from phalanx.simulate.report.series import short
from phalanx.simulate.report.text import chart_text, labels
from phalanx.simulate.studies.table import duration_text, index_text, share_text

QUEUES_MAX = 20

Key = TypeVar("Key")


def wait_by_queue(results: Labelled) -> Chart:
    """The queues whose jobs waited."""
    return _by_queue(("wait-by-queue", "Mean wait by queue"), results, lambda job: job.wait_s)


def jct_by_queue(results: Labelled) -> Chart:
    """The queues whose jobs took long."""
    return _by_queue(
        ("jct-by-queue", "Mean time to completion by queue"),
        results,
        lambda job: job.jct_s if job.state == JobState.SUCCEEDED else None,
    )


def served_by_queue(results: Labelled) -> Chart:
    """What Jain's index is made of."""
    counts = [_grouped(result.jobs, lambda job: job.queue, lambda job: 1.0) for _, result in results]
    queues = [queue for queue in _most_used(counts) if any(queue in result.served for _, result in results)]
    shown = sorted(queues[:QUEUES_MAX])
    shares = [(label, [result.served.get(queue) for queue in shown]) for label, result in results]
    names = labels(shown)
    indices = [result.summary["fairness"]["jain"] for _, result in results]
    return Chart(
        "served-by-queue",
        "Service by queue",
        f"GPU time that the jobs of a queue had ÷ what they asked for. {_queue_note(len(shown), len(queues))}",
        tuple(_bars(label, series, names, own, "") for series, (label, own) in enumerate(shares)) if shown else (),
        layout(axis("", type="category"), share_axis(""), barmode="group"),
        Grid(
            ("queue", *(label for label, _ in shares)),
            (
                *((queue, *(_share(own[index]) for _, own in shares)) for index, queue in enumerate(names)),
                ("Jain's index of all queues", *("-" if index is None else index_text(index) for index in indices)),
            ),
        ),
    )


def wait_by_size(results: Labelled) -> Chart:
    """Whether large jobs wait longer than small ones."""
    waits = [
        (label, _grouped(result.jobs, lambda job: _size_class(job.gpus), lambda job: job.wait_s))
        for label, result in results
    ]
    sizes = sorted({size for _, groups in waits for size in groups})
    longest_s = max((max(own) for _, groups in waits for own in groups.values()), default=0.0)
    note = (
        "The line in a box is the median wait of jobs of so many GPUs; the box holds the middle half, the whiskers "
        "90 %. The axis is logarithmic; waits of less than a second are drawn as one second."
    )
    return Chart(
        "wait-by-size",
        "Wait by the size of jobs",
        note if sizes else "No job has started.",
        tuple(_boxes(label, series, groups) for series, (label, groups) in enumerate(waits) if groups),
        layout(
            axis("GPUs", type="category", categoryorder="array", categoryarray=[_size_name(size) for size in sizes]),
            log_axis("wait", longest_s),
            boxmode="group",
        ),
        Grid(
            ("GPUs", *SPREAD_HEADER),
            tuple(
                (_size_name(size), *spread_row(label, groups.get(size, [])))
                for size in sizes
                for label, groups in waits
            ),
        ),
        wide=True,
    )


def _by_queue(name: tuple[str, str], results: Labelled, value: Callable[[JobResult], float | None]) -> Chart:
    groups = [(label, _grouped(result.jobs, lambda job: job.queue, value)) for label, result in results]
    queues = _most_used([queue_jobs for _, queue_jobs in groups])
    shown = sorted(queues[:QUEUES_MAX])
    means = [(label, [_mean(own.get(queue, [])) for queue in shown]) for label, own in groups]
    unit = unit_for(max((mean for _, own in means for mean in own if mean is not None), default=0.0))
    names = labels(shown)
    return Chart(
        *name,
        _queue_note(len(shown), len(queues)),
        tuple(_bars(label, series, names, _in(unit, own), unit.name) for series, (label, own) in enumerate(means))
        if shown
        else (),
        layout(axis("", type="category"), axis(unit.name, rangemode="tozero"), barmode="group"),
        Grid(
            ("queue", *(label for label, _ in means)),
            tuple((queue, *(_text(own[index]) for _, own in means)) for index, queue in enumerate(names)),
        ),
    )


def _most_used(groups: Sequence[dict[str, list[float]]]) -> list[str]:
    """Queues, those with the most jobs first."""
    jobs: dict[str, int] = {}
    for queues in groups:
        for queue, own in queues.items():
            jobs[queue] = jobs.get(queue, 0) + len(own)
    return sorted(jobs, key=lambda queue: (-jobs[queue], queue))


def _queue_note(shown: int, total: int) -> str:
    if not total:
        return "There is no such job."
    note = "Where the bars of one policy are equally high, it treats the queues alike."
    return note if shown == total else f"{note} Shown are the {shown} of {total} queues with the most jobs."


def _in(unit: Unit, times_s: Sequence[float | None]) -> list[float | None]:
    return [None if time_s is None else unit.of(time_s) for time_s in times_s]


def _bars(label: str, series: int, names: Sequence[str], values: Sequence[float | None], unit: str) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": chart_text(label),
        "x": [chart_text(name) for name in names],
        "y": [None if value is None else short(value) for value in values],
        "hovertemplate": f"%{{x}}: %{{y:.3g}} {unit}".rstrip(),
        "meta": {"series": series},
    }


def _boxes(label: str, series: int, waits: dict[int, list[float]]) -> dict[str, Any]:
    ordered = [(size, sorted(max(wait_s, LEAST_S) for wait_s in waits[size])) for size in sorted(waits)]

    def at(percent: int) -> list[float]:
        return [short(percentile(values, percent) or LEAST_S) for _, values in ordered]

    return {
        "type": "box",
        "name": chart_text(label),
        "x": [_size_name(size) for size, _ in ordered],
        "lowerfence": at(5),
        "q1": at(25),
        "median": at(50),
        "q3": at(75),
        "upperfence": at(95),
        "meta": {"series": series},
    }


def _size_class(gpus: int) -> int:
    """Sizes by powers of two: 0, 1, 2, 3 to 4, 5 to 8, …; a class is known by its largest."""
    return gpus if gpus < 2 else 1 << (gpus - 1).bit_length()


def _size_name(largest: int) -> str:
    return str(largest) if largest <= 2 else f"{largest // 2 + 1}–{largest}"


def _grouped(
    jobs: Iterable[JobResult], group: Callable[[JobResult], Key], value: Callable[[JobResult], float | None]
) -> dict[Key, list[float]]:
    groups: dict[Key, list[float]] = {}
    for job in jobs:
        figure = value(job)
        if figure is not None:
            groups.setdefault(group(job), []).append(figure)
    return groups


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _share(share: float | None) -> str:
    return "-" if share is None else share_text(share)


def _text(seconds: float | None) -> str:
    return "-" if seconds is None else duration_text(seconds)
