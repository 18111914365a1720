"""Promises of tiers: how much of the GPU time a job asks for it is to have, and whether there is enough for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from phalanx.policy.parameters import Parameters
from phalanx.policy.policy import Memory, Observe
from phalanx.protocol.event import (
    AttemptEnded,
    ClusterChanged,
    ClusterDefined,
    Event,
    Failed,
    JobCancelled,
    JobChanged,
    JobSubmitted,
    Outcome,
    TimerDue,
)
from phalanx.workload.job import Job
from phalanx.workload.tier import PROMISED, Tier, tier_of

WHOLE = 1000
"""Promises are counted in thousandths."""

PERMILLE_OF_PERCENT = 10

LEAD_MS = 60_000
"""The most that a job has left of its slack when it is due: the usual grace of a victim, and as long to start."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a tier promises, in thousandths of the GPU time a job asks for, in any window of time."""

    permille: int
    window_ms: int

    @property
    def slack_ms(self) -> int:
        """For how long of a window a job may do without."""
        return self.window_ms * (WHOLE - self.permille) // WHOLE

    @property
    def lead_ms(self) -> int:
        """Slack that is left when victims are to be stopped: they take time to leave, and a job takes some to start."""
        return min(LEAD_MS, self.slack_ms // 4)


def promises_of(parameters: Parameters) -> dict[Tier, Promise]:
    """What each tier promises: `premium` and `standard` are percent of GPU time, in any `window`."""
    window_ms = parameters.duration_ms("window", "1h")
    permilles = {
        tier: PERMILLE_OF_PERCENT
        * parameters.integer(tier.value, default=round(100 * PROMISED[tier]), least=1, most=100)
        for tier in (Tier.PREMIUM, Tier.STANDARD)
    }
    return {tier: Promise(permilles.get(tier, 0), window_ms) for tier in Tier}


def is_beyond(memory: Mapping[str, Any], tier: Tier) -> bool:
    """Whether there are not GPUs enough for what a tier, and those above it, promise to all of their jobs."""
    return tier.value in memory.get("beyond", ())


def keeping_account(promises: Mapping[Tier, Promise]) -> Observe:
    """Keeps account of what is promised to all jobs that are here. `next_ms` is when all keys change."""

    def observe(memory: Memory, event: Event, now: int) -> None:
        match event:
            case ClusterDefined() | ClusterChanged():
                memory["gpus"] = sum(node.gpus for node in event.cluster.nodes)
            case JobSubmitted() | JobChanged():
                _remember(memory, event.job, promises[tier_of(event.job)])
            case JobCancelled():
                _forget(memory, event.job)
            case AttemptEnded() if event.outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
                _end(memory, event.job, failed=event.outcome is Outcome.FAILED)
            case Failed() if not event.retryable:
                _forget(memory, event.action.job)
            case TimerDue() if memory.get("next_ms") is not None and memory["next_ms"] <= now:
                memory["next_ms"] = None
                return
            case _:
                return
        _judge(memory, now)

    return observe


def _remember(memory: Memory, job: Job, promise: Promise) -> None:
    """An entry is the tier, the GPUs that are promised, in thousandths, and how often the job may still fail.

    One that is too large for the cluster is promised nothing.
    """
    _forget(memory, job.id)
    if promise.permille and job.gang.gpus_min <= memory.get("gpus", 0):
        entry = [tier_of(job).value, promise.permille * job.gang.gpus_max, job.retry_limit]
        memory.setdefault("promised", {})[job.id] = entry
        sums = memory.setdefault("sums", dict.fromkeys((tier.value for tier in Tier), 0))
        sums[entry[0]] += entry[1]


def _forget(memory: Memory, job: str) -> None:
    entry = memory.get("promised", {}).pop(job, None)
    if entry is not None:
        memory["sums"][entry[0]] -= entry[1]


def _end(memory: Memory, job: str, failed: bool) -> None:
    entry = memory.get("promised", {}).get(job)
    if entry is not None and failed and entry[2] > 0:
        entry[2] -= 1
    else:
        _forget(memory, job)


def _judge(memory: Memory, now: int) -> None:
    """Higher tiers have theirs first: what a lower one promises has to fit beside that."""
    beyond: list[str] = []
    promised = 0
    for tier in Tier:
        permille = memory.get("sums", {}).get(tier.value, 0)
        promised += permille
        if permille and promised > WHOLE * memory.get("gpus", 0):
            beyond.append(tier.value)
    if beyond != memory.get("beyond", []):
        memory["beyond"], memory["next_ms"] = beyond, now
