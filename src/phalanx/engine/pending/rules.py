"""How pending jobs are retried under a policy: whether a refusal lasts, and what must be tried to be known."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.state.state import State
from phalanx.policy.policy import Reserve, Targets


class Rules(NamedTuple):
    """`lasts`: a refusal holds until capacity grows where that may help. `plain`: nothing leaves or is reserved for a
    job that does not fit, so that a class is only tried where there is capacity and quota. `by_quota`: it needs quota,
    or jobs of its own queue that may leave for it, or the right to reclaim, or it is past its max_wait.
    """

    lasts: bool
    plain: bool
    by_quota: bool


def rules_of(state: State, builder: PlanBuilder) -> Rules:
    """Those of a decision."""
    policy = state.policy
    # In cells, what grows on one node may let a virtual cell be bound to another; extras come from wherever they are.
    elsewhere = state.cells is not None or builder.extras_are_lent
    passes = policy.lets_all_pass and not elsewhere
    lasts = passes and policy.targets is not Targets.DRIFT and not policy.victims_vary
    plain = passes and policy.reserve is Reserve.NOBODY and not policy.preempts
    needs_quota = plain or (lasts and not policy.has_reclaims and policy.reserve is Reserve.NOBODY)
    by_quota = bool(state.quotas) and needs_quota
    return Rules(lasts, plain, by_quota)
