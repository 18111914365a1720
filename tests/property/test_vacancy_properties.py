"""What terminating attempts leave: kept from job to job and without what is claimed, runs are as if it were neither."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.bench.simulate.heterogeneity import HOUR_MS, TYPES, Blind, drawn
from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.state import State
from phalanx.engine.transaction import transaction
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.world.costs import NO_COSTS, Costs
from reference.vacancy import PlainVacancy


def a_run(seed: int, gpus: int, costs: Costs) -> list[tuple[int, str, object]]:
    """Of jobs that nearly all change places in every round: which attempts there are, and where, after every turn."""
    nodes = tuple(Node(f"{name.lower()}-{i}", (), gpus, name) for name in TYPES for i in range(6 // gpus))
    simulation = Simulation(Setup(Cluster(nodes), drawn(30, 12.0, seed), "gavel:round=3600", costs=costs))
    simulation.begin()
    simulation.run.adviser = Blind()
    seen: list[tuple[int, str, object]] = []

    def look(state: State) -> None:
        seen.extend((state.now, attempt.key, tuple(attempt.bookings)) for attempt in state.attempts_present())

    simulation.go(until_ms=8 * HOUR_MS, watch=look)
    return seen


@pytest.mark.needs("highspy")
@pytest.mark.parametrize("costs", [NO_COSTS, Costs()], ids=["at no cost", "at a cost"])
@pytest.mark.parametrize("gpus", [1, 2])
@settings(deadline=None, max_examples=3)
@given(st.integers(0, 1000))
def test_jobs_run_where_they_would_if_each_booking_that_is_left_were_given_back_by_itself(
    costs: Costs, gpus: int, seed: int
) -> None:
    found = a_run(seed, gpus, costs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "Vacancy", PlainVacancy)
        assert found == a_run(seed, gpus, costs)
