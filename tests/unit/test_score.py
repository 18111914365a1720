"""The scores by which a node is chosen, and that nodes are ranked by them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.bits import members
from phalanx.cluster.capacity import Booking, Capacity
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.topology import Topology
from phalanx.placement.pack import Packing
from phalanx.placement.score import score_of

TASKS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 4)), max_size=24)
SIZES = st.lists(st.sampled_from([2, 4, 8]), min_size=8, max_size=8)


def used(sizes: list[int], tasks: list[tuple[int, int]]) -> Capacity:
    """Nodes of these sizes, with as many of these tasks on them as fit."""
    cluster = Cluster(tuple(Node(f"n{i}", (), size) for i, size in enumerate(sizes)))
    capacity = Capacity(Topology(cluster))
    for number, (node, gpus) in enumerate(tasks):
        free = list(members(capacity.free[node]))
        if len(free) >= gpus:
            devices = sum(1 << device for device in free[:gpus])
            capacity.hold(Booking(node, devices, (), holder=f"t{number}#0"))
    return capacity


@given(SIZES, TASKS, st.integers(1, 8))
def test_nodes_are_ranked_by_their_scores_and_equal_ones_stand_together(
    sizes: list[int], tasks: list[tuple[int, int]], gpus: int
) -> None:
    capacity = used(sizes, tasks)
    ranked = [
        [score_of(capacity, gpus, node) for node in members(nodes)]
        for nodes in Packing().ranked(capacity, gpus, capacity.topology.everything)
    ]
    assert sum(map(len, ranked)) == sum(free.bit_count() >= gpus for free in capacity.free)
    assert all(len(set(scores)) == 1 for scores in ranked)
    firsts = [scores[0] for scores in ranked]
    assert firsts == sorted(firsts, reverse=True)


def test_an_even_rest_decides_between_equally_busy_nodes_only() -> None:
    capacity = used([8, 8, 8], [(0, 4), (1, 3), (2, 1), (2, 1), (2, 3)])
    scores = [score_of(capacity, 1, node) for node in range(3)]
    assert scores[1] > scores[0], "one task each: four left rather than three"
    assert scores[2] > scores[1], "three tasks go before one, though an odd rest is left"
