"""Description: what is in a trace, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from math import ceil
from typing import Any

from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.load import job_gpu_ms, span_ms, work_gpu_ms

BUCKETS_MAX = 24
BUCKET_WIDTHS_S = (1, 10, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400, 2 * 86_400, 7 * 86_400)
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}
HOUR_MS = 3_600_000
TOP = 0.01


def describe(trace: Trace) -> dict[str, Any]:
    """Counts, sizes, durations, GPU time and load over time. Shares are 0 to 1; quantiles are values of jobs."""
    jobs = trace.jobs
    work, span = work_gpu_ms(trace), span_ms(trace)
    gpu_times = sorted(map(job_gpu_ms, jobs))
    return {
        "name": trace.name,
        "jobs": len(jobs),
        "dropped": trace.dropped,
        "bad_rows": list(trace.bad_rows),
        "notes": list(trace.notes),
        "span_s": span / 1000,
        "gpu_hours": work / HOUR_MS,
        "gpus_offered": work / span if span else None,
        "gpus_max": max((job.gpus for job in jobs), default=0),
        "users": len({job.user for job in jobs if job.user}),
        "models": len({job.model for job in jobs if job.model}),
        "elastic": sum(1 for job in jobs if _is_elastic(job)),
        "deadlines": sum(1 for job in jobs if job.deadline_ms is not None),
        "shared": sum(1 for job in jobs if job.gpu_milli),
        "zero_duration": sum(1 for job in jobs if not job.duration_ms),
        "top_1_percent_gpu_time": _share(sum(gpu_times[-ceil(TOP * len(jobs)) :]), work) if jobs else 0.0,
        "states": _counts(job.ending.value for job in jobs),
        "kinds": _counts(job.kind.value for job in jobs),
        "duration_s": _spread(sorted(job.duration_ms for job in jobs)),
        "gpu_time_s": _spread(gpu_times),
        "gpu_types": _counts(job.gpu_type for job in jobs if job.gpu_type),
        "sizes": _groups(trace, "gpus", lambda job: job.gpus, lambda row: row["gpus"]),
        "queues": _groups(trace, "queue", lambda job: job.queue, lambda row: (-row["jobs"], row["queue"])),
        "load": _load(trace),
    }


def _is_elastic(job: TraceJob) -> bool:
    return any(bound and bound != job.gpus for bound in (job.min_gpus, job.max_gpus))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _counts(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _spread(times_ms: list[int]) -> dict[str, float]:
    """Mean and quantiles of sorted times, in seconds. A quantile is the least value that so many do not exceed."""
    if not times_ms:
        return {}
    quantiles = {name: times_ms[ceil(part * len(times_ms)) - 1] / 1000 for name, part in QUANTILES.items()}
    return {"mean": sum(times_ms) / len(times_ms) / 1000, **quantiles}


def _groups(
    trace: Trace, name: str, key: Callable[[TraceJob], Hashable], order: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    groups: dict[Hashable, list[TraceJob]] = {}
    for job in trace.jobs:
        groups.setdefault(key(job), []).append(job)
    work = work_gpu_ms(trace)
    rows = [
        {
            name: value,
            "jobs": len(jobs),
            "job_share": len(jobs) / len(trace.jobs),
            "gpu_time_share": _share(sum(map(job_gpu_ms, jobs)), work),
            **{f"duration_{key}_s": value for key, value in _spread(sorted(job.duration_ms for job in jobs)).items()},
        }
        for value, jobs in groups.items()
    ]
    return sorted(rows, key=order)


def _load(trace: Trace) -> dict[str, Any]:
    """Over time: jobs submitted, and the GPUs that would be busy on average if no job ever waited."""
    span = span_ms(trace)
    fitting = (width for width in BUCKET_WIDTHS_S if span < width * 1000 * BUCKETS_MAX)
    width_s = next(fitting, ceil((span + 1) / 1000 / BUCKETS_MAX))
    width = width_s * 1000
    count = span // width + 1
    first = trace.jobs[0].submit_ms if trace.jobs else 0
    submitted, busy = [0] * count, _Busy(count, width)
    for job in trace.jobs:
        submitted[(job.submit_ms - first) // width] += 1
        busy.add(job.submit_ms - first, job.duration_ms, job.gpus)
    return {
        "bucket_s": width_s,
        "buckets": [{"at_s": i * width_s, "jobs": submitted[i], "gpus": gpus} for i, gpus in enumerate(busy.means())],
    }


class _Busy:
    """GPU time in buckets, each job at the cost of two: what it takes whole is summed up at the end."""

    def __init__(self, count: int, width: int) -> None:
        self.count, self.width = count, width
        self.partly = [0] * count
        self.change = [0] * (count + 1)

    def add(self, start: int, duration: int, gpus: int) -> None:
        end = min(start + duration, self.count * self.width)
        first, last = start // self.width, (end - 1) // self.width
        if last <= first:
            self.partly[first] += gpus * max(end - start, 0)
            return
        self.partly[first] += gpus * ((first + 1) * self.width - start)
        self.partly[last] += gpus * (end - last * self.width)
        self.change[first + 1] += gpus
        self.change[last] -= gpus

    def means(self) -> list[float]:
        """GPUs busy on average in each bucket."""
        means, whole = [], 0
        for i in range(self.count):
            whole += self.change[i]
            means.append(whole + self.partly[i] / self.width)
        return means
