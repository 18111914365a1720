"""Fair shares: what of a cluster falls to queues, as KAI and Volcano divide it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.queues import Queue
from phalanx.engine.turn import verify
from phalanx.policy.fair_shares import Claim, FairShares, divide
from phalanx.policy.volcano import claim
from phalanx.policy.wants import wants_of
from phalanx.protocol.event import PolicyChanged


def test_the_documented_example_of_kai_comes_out_as_documented() -> None:
    claims = [Claim(100_000, 10_000, 3, 0, None), Claim(100_000, 10_000, 1, 0, None)]
    assert divide(100_000, claims) == [70_000, 30_000]


def test_what_one_does_not_want_goes_to_the_others_by_weight() -> None:
    claims = [Claim(10, 0, 1, 0, None), Claim(100, 0, 1, 0, None), Claim(100, 0, 2, 0, None)]
    assert divide(100, claims) == [10, 30, 60]


def test_a_higher_priority_has_the_surplus_first_but_nobodys_quota() -> None:
    claims = [Claim(100, 20, 1, 0, None), Claim(70, 0, 1, 5, None)]
    assert divide(100, claims) == [30, 70]
    assert divide(50, claims) == [20, 30]


def test_nobody_has_more_than_its_limit() -> None:
    assert divide(100, [Claim(100, 0, 9, 0, 25), Claim(100, 0, 1, 0, None)]) == [25, 75]


claims = st.builds(
    Claim,
    st.integers(0, 500),
    st.integers(0, 60),
    st.integers(1, 9),
    st.integers(0, 2),
    st.none() | st.integers(60, 99),
)


@given(st.integers(300, 1000), st.lists(claims, min_size=1, max_size=5))
def test_all_is_divided_up_to_what_is_wanted(amount: int, given: list[Claim]) -> None:
    shares = divide(amount, given)
    bounds = [claim.wants if claim.most is None else min(claim.wants, claim.most) for claim in given]
    assert all(0 <= share <= bound for share, bound in zip(shares, bounds, strict=True))
    assert all(share >= min(claim.own, bound) for share, claim, bound in zip(shares, given, bounds, strict=True))
    # Less than one for each queue is lost to rounding.
    assert min(amount, sum(bounds)) - len(given) < sum(shares) <= amount


def test_wants_are_those_of_who_waits_and_who_runs_until_they_are_done() -> None:
    world = World(flat(1, 4), "kai")
    world.run(a_job("a", 4, queue="x"))
    world.submit(a_job("b", 2, queue="x"), a_job("c", 2, queue="y"))
    assert wants_of(world.state.memory, "x").gpu_permille == 6000
    world.end("a")
    assert wants_of(world.state.memory, "x").gpu_permille == 2000
    assert wants_of(world.state.memory, "").gpu_permille == 4000


def test_a_policy_that_takes_over_knows_what_those_want_who_are_here() -> None:
    world = World(flat(1, 4), "fifo")
    world.run(a_job("a", 4, queue="x"))
    world.submit(a_job("b", 2, queue="y"))
    world.turn(PolicyChanged("kai"))
    assert wants_of(world.state.memory, "x").gpu_permille == 4000
    assert wants_of(world.state.memory, "y").gpu_permille == 2000
    verify(world.journal)


def test_each_resource_is_divided_by_its_own_weight() -> None:
    queues = (Queue("a", weight=1, cpu_weight=3), Queue("b"))
    world = World(Cluster((Node("n0", (), 8, cpus_milli=80_000),), queues=queues), "kai")
    for queue in "ab":
        world.submit(*(a_job(f"{queue}{i}", 1, queue=queue, task={"cpus_milli": 20_000}) for i in range(8)))
    shares = FairShares(claim)(world.state)
    assert (shares["a"].gpu_permille, shares["b"].gpu_permille) == (4_000, 4_000)
    assert (shares["a"].cpus_milli, shares["b"].cpus_milli) == (60_000, 20_000)
