"""Any line: the one that suits the queues and the policy."""

from __future__ import annotations

from phalanx.engine.draft import Draft
from phalanx.engine.line import Line
from phalanx.engine.quota_line import QuotaLine
from phalanx.engine.state import State
from phalanx.policy.policy import Reserve, Targets, always, no_bound

AnyLine = Line | QuotaLine


def line_of(state: State, draft: Draft) -> AnyLine:
    """The line that suits the queues and the policy."""
    policy, quotas = state.policy, state.quotas
    by_means = bool(quotas) and not quotas.budgets and policy.allows is no_bound and state.cells is None
    passes = policy.backfill is always and policy.reserve is Reserve.NOBODY
    keeps = policy.targets is Targets.KEEP and passes and not policy.preempts and not draft.extras_are_lent
    return QuotaLine(state, draft) if by_means and keeps and policy.orders_queues else Line(state, draft)
