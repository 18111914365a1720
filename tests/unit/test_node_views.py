"""What policies see of nodes: remembered until something changes there, and then the same as if looked at anew."""

from __future__ import annotations

import pytest

from phalanx.cluster.cluster import Cluster, Node
from phalanx.engine.state.state import State
from phalanx.simulate.simulation import Setup, Simulation
from phalanx.simulate.traces.synthetic import Synthetic, synthesize

CLUSTER = Cluster(tuple(Node(f"n{i}", (f"r{i // 2}",), 4) for i in range(6)), ("rack", "node"))
TRACE = synthesize(Synthetic(jobs=150, gpus=24, load=1.3, sweeps=0.2, elastic=0.4, cancelled=0.1), 5)
FAULTS = tuple((hour * 3_600_000, "n1", "failed" if hour % 2 else "healthy", "as planned") for hour in range(1, 9))


@pytest.mark.parametrize("policy", ["gandiva", "antman", "pollux", "singularity", "phalanx", "priority"])
def test_nodes_are_seen_as_they_are_after_every_turn(policy: str) -> None:
    simulation = Simulation(Setup(CLUSTER, TRACE, policy, faults=FAULTS))
    simulation.begin()
    kept = 0

    def look(state: State) -> None:
        nonlocal kept
        before = list(state._views.values())
        seen = state.nodes()
        kept += sum(view in seen for _, view in before)
        state._views.clear()
        assert seen == state.nodes()

    simulation.go(watch=look)
    assert kept
