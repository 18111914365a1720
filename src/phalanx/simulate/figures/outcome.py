"""The outcome of a simulation: its Result, put together from the State and the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.engine.state.records import JobRecord, JobState
from phalanx.policy.registry import described
from phalanx.simulate.figures.failures import failure_figures
from phalanx.simulate.figures.fairness import served
from phalanx.simulate.figures.ledger import FULL_PERMILLE, Account
from phalanx.simulate.figures.metrics import Cost, Totals, summarize, within
from phalanx.simulate.figures.never_fit import never_fit
from phalanx.simulate.figures.outages import outages
from phalanx.simulate.figures.quota_use import quota_figures, quota_tracks
from phalanx.simulate.figures.result import JobResult, Result
from phalanx.simulate.figures.sampler import Stretch, mean_fragmentation, timeline_of
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.figures.tiers import Promised, promises_under
from phalanx.simulate.figures.window import Window
from phalanx.simulate.run import Refused
from phalanx.simulate.simulation import Simulation
from phalanx.workload.tier import tier_of

GPU_S = FULL_PERMILLE * 1000
"""Thousandths of a GPU times milliseconds in a GPU-second."""


def outcome(simulation: Simulation, policy: str, cost: Cost | None = None, window: Window | None = None) -> Result:
    """What a run came to, so far; times of jobs in a window, if given. `policy` is the policy as its user wrote it."""
    canaries = dict.fromkeys(simulation.canaries)
    records = (record for record in simulation.run.state.jobs.values() if record.job.id not in canaries)
    jobs = [_job_result(simulation, record) for record in records]
    jobs.extend(_refused(refused, simulation.now_ms) for refused in simulation.run.refused.values())
    stretches = simulation.stretches(round(_span_s(simulation, jobs)[1] * 1000))
    totals = _totals(simulation, policy, jobs, stretches)
    backend = simulation.backend
    stays, nodes = backend.ledger.stays.seen_at(simulation.now_ms, backend.present())
    alone_s = {
        job: work.duration_ms / 1000
        for job, work in simulation.works.items()
        if work.duration_ms is not None and job not in canaries
    }
    timeline = timeline_of(stretches)
    summary = summarize(
        jobs,
        totals,
        alone_s,
        cost,
        _promised(simulation),
        _deadlines_s(simulation),
        failure_figures(simulation, jobs),
    )
    if window is not None:
        summary |= within(window, jobs, totals, alone_s, timeline)
    if quotas := quota_figures([(each.quotas, each.span_ms) for each in stretches]):
        summary["quotas"] = quotas
    return Result(
        summary,
        _setup(simulation, policy),
        jobs,
        timeline,
        stays,
        nodes,
        backend.ledger.stays.left_out,
        _served(jobs, totals),
        outages(simulation.run.health, round(_span_s(simulation, jobs)[1] * 1000)),
        quota_tracks([each.quotas for each in stretches]),
    )


def _served(jobs: Sequence[JobResult], totals: Totals) -> dict[str, float]:
    fitting = [job for job in jobs if job.job_id not in totals.never_fit]
    return {queue: round(share, 6) for queue, share in served(fitting, totals.end_s or 0.0).items()}


def _promised(simulation: Simulation) -> Promised:
    state, backend = simulation.run.state, simulation.backend
    tiers = {name: tier_of(record.job) for name, record in state.jobs.items()}
    runs = {job: backend.runs_of(job, simulation.now_ms) for job in backend.ledger.runs}
    return Promised(tiers, promises_under(state.policy), runs)


def _deadlines_s(simulation: Simulation) -> dict[str, float]:
    """The deadlines of all jobs that have one, also of those that were never taken on."""
    records, refused = simulation.run.state.jobs.values(), simulation.run.refused.values()
    jobs = (*(record.job for record in records), *(each.job for each in refused))
    return {job.id: job.deadline_ms / 1000 for job in jobs if job.deadline_ms is not None}


def _job_result(simulation: Simulation, record: JobRecord) -> JobResult:
    now_ms, ledger = simulation.now_ms, simulation.backend.ledger
    account = ledger.accounts.get(record.job.id, NOTHING)
    until_ms = record.ended_ms if record.ended_ms is not None else now_ms
    submitted_ms, start_ms = record.submitted_ms, record.first_start_ms
    held_ms = simulation.backend.held_ms(record.job.id, now_ms)
    return JobResult(
        job_id=record.job.id,
        queue=record.job.queue,
        state=record.state.value,
        submit_s=submitted_ms / 1000,
        start_s=_seconds(start_ms),
        end_s=_seconds(record.ended_ms),
        wait_s=_seconds(start_ms - submitted_ms if start_ms is not None else None),
        queued_s=max(until_ms - submitted_ms - held_ms, 0) / 1000,
        jct_s=_seconds(record.ended_ms - submitted_ms if record.ended_ms is not None else None),
        gpus=record.job.gang.gpus_max,
        attempts=record.attempts,
        preemptions=record.preemptions,
        lost_gpu_s=rounded(_lost(account) / GPU_S) or 0.0,
        nodes=_nodes(simulation, record.job.id, account),
    )


def _nodes(simulation: Simulation, job: str, account: Account) -> tuple[str, ...]:
    """Where a job is, or was last."""
    life = simulation.backend.lives.get(job)
    placement = (life.placement if life is not None else None) or account.last
    return tuple(dict.fromkeys(slot.node for slot in placement.slots)) if placement is not None else ()


def _refused(refused: Refused, now: int) -> JobResult:
    """A job that was never taken on stands as one that waits."""
    return JobResult(
        job_id=refused.job.id,
        queue=refused.job.queue,
        state=JobState.WAITING.value,
        submit_s=refused.at_ms / 1000,
        start_s=None,
        end_s=None,
        wait_s=None,
        queued_s=max(now - refused.at_ms, 0) / 1000,
        jct_s=None,
        gpus=refused.job.gang.gpus_max,
        attempts=0,
        preemptions=0,
        lost_gpu_s=0.0,
    )


NOTHING = Account()


def _lost(account: Account) -> int:
    """GPU time that was held and led nowhere: not computing, or computing what had to be done again."""
    return account.held - account.computed + account.lost


def _seconds(at_ms: int | None) -> float | None:
    return at_ms / 1000 if at_ms is not None else None


def _span_s(simulation: Simulation, jobs: list[JobResult]) -> tuple[float, float]:
    """From the first submission to the last end, or up to now where not all is over."""
    begin_s = min((job.submit_s for job in jobs), default=0.0)
    ends = [job.end_s for job in jobs if job.end_s is not None]
    all_over = len(ends) == len(jobs)
    return begin_s, max(ends, default=begin_s) if all_over else simulation.now_ms / 1000


def _totals(simulation: Simulation, policy: str, jobs: list[JobResult], stretches: Sequence[Stretch]) -> Totals:
    state, backend = simulation.run.state, simulation.backend
    begin_s, end_s = _span_s(simulation, jobs)
    held, computed, lost, useful = backend.totals(simulation.now_ms)
    return Totals(
        policy=policy,
        gpus=simulation.cluster.gpus,
        capacity_gpu_s=simulation.capacity_gpu_s(begin_s, end_s),
        allocated_gpu_s=held / GPU_S,
        busy_gpu_s=computed / GPU_S,
        useful_gpu_s=useful / GPU_S,
        lost_gpu_s=(held - computed + lost) / GPU_S,
        fragmentation=mean_fragmentation(stretches),
        moves=backend.moves,
        resizes=backend.resizes,
        never_fit=never_fit(simulation.run),
        events=state.seq + 1,
        digest=str(state.digest),
        end_s=end_s,
    )


def _in_full(simulation: Simulation) -> str:
    """The policy with all its parameters, those that were not given as well."""
    policy = simulation.run.state.policy
    values = ((each.name, policy.parameters.get(each.name, each.default)) for each in described(policy.name)[1])
    told = ",".join(f"{name}={value}" for name, value in values if value is not None)
    return f"{policy.name}:{told}" if told else policy.name


def _setup(simulation: Simulation, policy: str) -> dict[str, Any]:
    setup = simulation.setup
    return {
        "policy": policy,
        "policy_in_full": _in_full(simulation),
        "placement": setup.placement,
        "costs": setup.costs.text(),
        "seed": setup.seed,
        "trace": setup.trace.name,
        "jobs": len(setup.trace.jobs),
        "cluster": setup.cluster.name,
        "nodes": len(setup.cluster.nodes),
        "gpus": setup.cluster.gpus,
        "peak_queue": max(simulation.sampler.waiting_peak, simulation.run.state.in_line),
        "advice_kept": simulation.run.state.memory.get("kept", 0) if simulation.run.state.policy.adviser else 0,
    }
