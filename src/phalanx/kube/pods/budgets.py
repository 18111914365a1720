"""Budgets: whether all pods of a gang may be evicted at once, now or ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.kube.objects.budget import DisruptionBudget
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.labels import selects


def keeps(budgets: Iterable[DisruptionBudget], pods: Sequence[Pod]) -> str:
    """The budget that does not allow all of some pods to be evicted now, as a line; empty if none forbids it."""
    for budget in budgets:
        count = _selected(budget, pods)
        if count > budget.status.disruptions_allowed:
            allowed = budget.status.disruptions_allowed
            return f"PodDisruptionBudget {budget.metadata.key} allows {allowed} of {count} pods to be evicted"
    return ""


def keeps_always(budgets: Iterable[DisruptionBudget], pods: Sequence[Pod]) -> bool:
    """Whether a budget never allows all of some pods to be evicted at once, however many run."""
    return any(_may_go_at_most(budget) < _selected(budget, pods) for budget in budgets)


def _selected(budget: DisruptionBudget, pods: Iterable[Pod]) -> int:
    return sum(
        1
        for pod in pods
        if pod.metadata.namespace == budget.metadata.namespace
        and selects(budget.spec.selector, pod.metadata.labels or {})
    )


def _may_go_at_most(budget: DisruptionBudget) -> float:
    """Pods that may be away at a time; without a limit where that depends on how many there are."""
    spec = budget.spec
    if isinstance(spec.max_unavailable, int):
        return spec.max_unavailable
    return 0 if spec.max_unavailable == "0%" or spec.min_available == "100%" else float("inf")
