"""Offered load: GPU time that a trace asks for, over the GPU time there is while its jobs are submitted."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

from phalanx.document.error import brief
from phalanx.document.units import decimal
from phalanx.errors import PhalanxError
from phalanx.simulate.trace import Trace, TraceJob
from phalanx.simulate.traces.error import TraceError


class LoadError(PhalanxError):
    """A load that cannot be read."""


def load_of(text: str, own: float) -> float:
    """A load as people write it: a number such as 0.9, or a change of a trace's own such as +30% or -10%."""
    number = decimal(text.strip().removesuffix("%"))
    if number is None or (text[:1] in "+-") != text.rstrip().endswith("%"):
        raise LoadError(f"load {brief(text)}: expected a number such as 0.9, or a change such as +30%")
    load = own * (1 + float(number) / 100) if text.rstrip().endswith("%") else float(number)
    if not isfinite(load) or load <= 0:
        raise LoadError(f"load {brief(text)}: expected a load above 0, got {load:g}")
    return load


def work_gpu_ms(trace: Trace) -> int:
    """GPU time of all jobs together. Parts of a GPU count as what they are."""
    return sum(job_gpu_ms(job) for job in trace.jobs)


def job_gpu_ms(job: TraceJob) -> int:
    """GPU time of a job."""
    whole = job.gpus * job.duration_ms
    return whole * job.gpu_milli // 1000 if job.gpu_milli else whole


def span_ms(trace: Trace) -> int:
    """Time from the first submission to the last."""
    return trace.jobs[-1].submit_ms - trace.jobs[0].submit_ms if trace.jobs else 0


def offered_load(trace: Trace, gpus: int) -> float:
    """Load on a cluster of so many GPUs: 1 keeps all of them busy for as long as jobs are submitted."""
    span = span_ms(trace)
    if not span or gpus < 1:
        raise TraceError(trace.name, "the load is not defined: all jobs are submitted at once, or there are no GPUs")
    return work_gpu_ms(trace) / (gpus * span)


def at_load(trace: Trace, gpus: int, load: float) -> Trace:
    """The trace with its submissions drawn apart or together, so that its offered load on `gpus` GPUs is `load`.

    Durations stay, and so do the times from a job's submission to its deadline and its cancellation. The last
    submission falls on a whole millisecond, which is as near to the load as integers come.
    """
    if gpus < 1 or not isfinite(load) or load <= 0:
        raise TraceError(trace.name, f"expected GPUs and a load above 0, got {gpus} GPUs and a load of {load}")
    span, work = span_ms(trace), work_gpu_ms(trace)
    if not span or not work:
        raise TraceError(trace.name, "cannot be brought to a load: all jobs are submitted at once, or none runs")
    first_ms, new_span = trace.jobs[0].submit_ms, round(work / (gpus * load))
    jobs = tuple(moved(job, first_ms + (job.submit_ms - first_ms) * new_span // span) for job in trace.jobs)
    return replace(trace, jobs=jobs)


def moved(job: TraceJob, submit_ms: int) -> TraceJob:
    """The job, submitted at another time; its deadline and cancellation move with it."""
    later_ms = submit_ms - job.submit_ms
    return replace(
        job,
        submit_ms=submit_ms,
        deadline_ms=None if job.deadline_ms is None else job.deadline_ms + later_ms,
        cancel_ms=None if job.cancel_ms is None else job.cancel_ms + later_ms,
    )
