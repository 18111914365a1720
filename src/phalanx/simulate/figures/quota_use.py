"""The use of quotas: how many GPUs each queue has of those that it deserves, and how many it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from phalanx.engine.quota.account import GPUS
from phalanx.engine.state.state import State
from phalanx.simulate.figures.result import QuotaTrack
from phalanx.simulate.figures.spread import rounded

PERMILLE = 1000


class QuotaUse(NamedTuple):
    """GPUs of a queue, with those of the queues inside: at a moment, or the means of a time.

    `demand` is what it asks for within its quota, by jobs that have GPUs or are pending; `served` what it has of that.
    """

    quota: float
    used: float
    demand: float
    served: float


NO_USE = QuotaUse(0.0, 0.0, 0.0, 0.0)
"""Of a queue at a time when there was none of the name."""


def quota_use(state: State) -> dict[str, QuotaUse]:
    """Of each queue that deserves GPUs, now."""
    accounts = state.quotas.accounts
    deserving = [path for path, account in accounts.items() if path and account.queue.deserved[GPUS]]
    if not deserving:
        return {}
    pending = _pending_gpus(state)
    found = {}
    for path in deserving:
        quota, used = accounts[path].deserved[GPUS] / PERMILLE, accounts[path].used[GPUS] / PERMILLE
        found[path] = QuotaUse(quota, used, min(quota, used + pending.get(path, 0)), min(quota, used))
    return found


def _pending_gpus(state: State) -> dict[str, int]:
    """What pending jobs ask for, by queue and by those that it lies in."""
    own: dict[str, int] = {}
    for waiting in state.classes.values():
        for _, job in waiting.jobs:
            record = state.jobs[job]
            own[record.job.queue] = own.get(record.job.queue, 0) + record.gpus
    whole: dict[str, int] = {}
    for path, gpus in own.items():
        for account in state.quotas.accounts[path].trail:
            whole[account.path] = whole.get(account.path, 0) + gpus
    return whole


def joined_use(*parts: tuple[Mapping[str, QuotaUse], int]) -> dict[str, QuotaUse]:
    """The means over times that follow one another, each with its length."""
    paths = dict.fromkeys(path for uses, _ in parts for path in uses)
    return {path: _mean([(uses.get(path, NO_USE), span_ms) for uses, span_ms in parts]) for path in paths}


def _mean(parts: Sequence[tuple[QuotaUse, int]]) -> QuotaUse:
    total_ms = sum(span_ms for _, span_ms in parts)
    if not total_ms:
        return parts[-1][0]
    return QuotaUse(*(fsum(use[field] * span_ms for use, span_ms in parts) / total_ms for field in range(len(NO_USE))))


def attained(use: QuotaUse) -> float | None:
    """The share of what it deserved and asked for that it had; None where it asked for nothing."""
    return rounded(use.served / use.demand) if use.demand else None


def quota_tracks(uses: Sequence[Mapping[str, QuotaUse]]) -> dict[str, QuotaTrack]:
    """What was seen in each stretch of time, by queue."""
    paths = dict.fromkeys(path for each in uses for path in each)
    return {path: _track([each.get(path, NO_USE) for each in uses]) for path in paths}


def _track(uses: Sequence[QuotaUse]) -> QuotaTrack:
    return QuotaTrack(
        [round(use.quota, 6) for use in uses],
        [round(use.used, 6) for use in uses],
        [attained(use) for use in uses],
    )


def quota_figures(parts: Sequence[tuple[Mapping[str, QuotaUse], int]]) -> dict[str, Any]:
    """Means over a whole run, of each queue that deserves GPUs at any time of it; nothing where none does."""
    by_queue = {path: _figures(use) for path, use in joined_use(*parts).items()}
    shares = [figures["attained"] for figures in by_queue.values() if figures["attained"] is not None]
    return {"least_attained": min(shares, default=None), "by_queue": by_queue} if by_queue else {}


def _figures(use: QuotaUse) -> dict[str, float | None]:
    return {"deserved_gpus": rounded(use.quota), "used_gpus": rounded(use.used), "attained": attained(use)}
