"""What is kept for jobs that have waited too long, under random histories: no decision loses count of it."""

from __future__ import annotations

from random import Random

import pytest
from test_pending_properties import History

from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.quota.account import EVERY
from phalanx.protocol.plan import Plan, Verdict

SEEDS = range(24)


def withheld(builder: PlanBuilder) -> dict[tuple[str, int], int]:
    """By queue and resource, as quotas have it."""
    accounts = builder.state.quotas.accounts.items()
    return {(path, resource): each.withheld[resource] for path, each in accounts for resource in EVERY}


def held(builder: PlanBuilder) -> dict[tuple[str, int], int]:
    """By queue and resource, as the holds have it."""
    found = dict.fromkeys(withheld(builder), 0)
    for hold in builder.quota_reservations.made:
        for path, amount in hold.kept:
            found[path, hold.resource] += amount
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_quotas_withhold_what_the_holds_say_also_where_a_step_was_undone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def plan(builder: PlanBuilder, verdicts: tuple[Verdict, ...], head: str, exhaustive: bool) -> Plan:
        counted.append((withheld(builder), held(builder)))
        return finished(builder, verdicts, head, exhaustive)

    finished = PlanBuilder.plan
    monkeypatch.setattr(PlanBuilder, "plan", plan)
    history = History(Random(seed), ("phalanx", "las", "srtf"), max_wait_ms=3_000)
    for _ in range(8):
        history.decide()
        history.go_on()
    for in_quotas, in_holds in counted:
        assert in_quotas == in_holds
