"""A quota or a budget that is used up, with the arithmetic."""

from __future__ import annotations

from phalanx.cluster.queues import with_unit
from phalanx.engine.quota.shortfall import said
from phalanx.engine.why.evidence import Budget, QuotaShort
from phalanx.words.phrases import gpu_time, queue_words


def out_of_budget(budget: Budget) -> str:
    """Which budget is used up, with what was spent of it."""
    if not budget.spent_gpu_ms and not budget.budget_gpu_ms:
        return f"{queue_words(budget.queue)} has a budget of 0 GPU-hours"
    (used, whole), unit = gpu_time(budget.spent_gpu_ms, budget.budget_gpu_ms)
    return f"{queue_words(budget.queue)} has used up its budget: {used} of {whole} {unit}"


def over_quota(short: QuotaShort | None) -> str:
    """Which quota is used up, with the arithmetic."""
    if short is None:
        return "its queue has what it needs by now"
    if short.by_budget:
        return f"{queue_words(short.at)} has used up its budget of GPU-hours"
    left = said(max(short.left, 0), short.resource)
    needs = f"it needs {with_unit(short.asked, short.resource)}"
    if short.most is not None:
        return f"{needs}, and {_at_most(short, short.most)}; it can never start as it is"
    whose = "of what its queue has or may borrow"
    if short.by_limit:
        whose = f"of the limit of queue {short.at}" if short.at else "of what the policy lets it have"
    verb = "is" if left == "1" else "are"
    return f"{needs}, and {left} {verb} left {whose}{_used_up(short)}"


def _at_most(short: QuotaShort, most: int) -> str:
    """What a queue could ever have, by the limit that says so."""
    limit = short.limit or 0
    owner = "its limit is" if short.at == short.queue else f"the limit of queue {short.at} is"
    text = f"{owner if short.at else 'the cluster has'} {said(limit, short.resource)}"
    rest = f", of which {said(limit - most, short.resource)} guaranteed to others" if limit > most else ""
    return f"queue {short.queue} could never have more than {said(most, short.resource)}: {text}{rest}"


def _used_up(short: QuotaShort) -> str:
    """What of a quota is used, and what is kept for other queues."""
    if short.limit is None:
        return ""
    kept = f", {said(short.kept, short.resource)} guaranteed to others" if short.kept else ""
    where = "" if short.at else " in the cluster"
    return f" ({said(short.used, short.resource)} of {said(short.limit, short.resource)}{where} used{kept})"
