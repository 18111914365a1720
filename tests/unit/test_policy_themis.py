"""themis: auctions with partial allocation, and leases."""

from __future__ import annotations

from itertools import combinations
from math import exp, isclose

from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.advice.auction import Bid, auction
from phalanx.advice.registry import adviser
from phalanx.cluster.cluster import flat
from phalanx.engine.turn import replay, verify
from phalanx.protocol.event import JobSubmitted

bids = st.lists(st.tuples(st.integers(1, 6), st.floats(0.01, 3.0)), min_size=1, max_size=6).map(
    lambda told: [Bid(f"j{i}", gpus, gain) for i, (gpus, gain) in enumerate(told)]
)


def best(told: list[Bid], gpus: int) -> float:
    """The greatest sum of gains, by trying all."""
    return max(
        sum(bid.gain for bid in chosen)
        for size in range(len(told) + 1)
        for chosen in combinations(told, size)
        if sum(bid.gpus for bid in chosen) <= gpus
    )


@given(bids, st.integers(0, 12))
def test_the_winners_have_the_greatest_product_of_valuations(told: list[Bid], gpus: int) -> None:
    won = auction(told, gpus)
    by_job = {bid.job: bid for bid in told}
    assert sum(by_job[each.job].gpus for each in won) <= gpus
    assert isclose(sum(by_job[each.job].gain for each in won), best(told, gpus), abs_tol=1e-9)


@given(bids, st.integers(1, 12))
def test_a_winner_keeps_what_it_leaves_to_the_others(told: list[Bid], gpus: int) -> None:
    for each in auction(told, gpus):
        others = [bid for bid in told if bid.job != each.job]
        with_it = best(told, gpus) - next(bid.gain for bid in told if bid.job == each.job)
        assert isclose(each.kept, exp(with_it - best(others, gpus)), rel_tol=1e-6)


def test_who_pushes_nobody_out_pays_nothing() -> None:
    assert [each.kept for each in auction([Bid("a", 1, 1.0), Bid("b", 1, 2.0)], 2)] == [1.0, 1.0]


def test_the_largest_auctions_go_by_gain_per_gpu() -> None:
    many = [Bid(f"j{i:04}", 2, 1 + i / 1000) for i in range(1000)]
    won = auction(many, 1000, payments=False)
    assert {each.job for each in won} == {f"j{i:04}" for i in range(500, 1000)}


def test_what_an_auction_came_to_is_journaled_and_replayed_without_holding_it_again() -> None:
    world = World(flat(1, 1), "themis:filter=0,lease=10m")
    world.adviser = adviser("themis")
    world.run(a_job("a", duration_ms=3_600_000))
    world.turn(JobSubmitted(a_job("b", duration_ms=60_000)), after_ms=1000)
    world.turn(after_ms=30_000)
    plan = world.turn(after_ms=600_000)
    assert [action.id.job for action in plan.actions] == ["a"]
    assert world.state.memory["leases"]["b"] > world.now
    for told in (replay(world.journal), verify(world.journal)):
        assert told.memory == world.state.memory
