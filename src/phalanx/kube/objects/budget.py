"""Disruption budgets: how many of some pods may be evicted."""

from __future__ import annotations

from phalanx.kube.objects.meta import Stored, Wire
from phalanx.kube.objects.pod import LabelSelector


class BudgetSpec(Wire, frozen=True):
    """The pods of a budget, and how many must stay or may go: a number or a percentage."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class BudgetStatus(Wire, frozen=True):
    """How many pods may be evicted now, as its controller counts."""

    disruptions_allowed: int = 0


class DisruptionBudget(Stored, frozen=True):
    """A PodDisruptionBudget."""

    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
