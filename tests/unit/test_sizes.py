"""Sizes of elastic gangs that hold whole replicas of a parallel plan's model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.parallel import ParallelPlan
from phalanx.workload.sizes import fewer, gpus_of, of_whole_replicas, steps, whole_steps

ROLES = st.builds(
    lambda name, least, more, gpus: Role(name, least, least + more, Task(gpus)),
    st.just("w"),
    st.integers(1, 6),
    st.integers(0, 12),
    st.integers(0, 8),
)


@given(st.lists(ROLES, min_size=1, max_size=2).map(tuple), st.integers(1, 6), st.integers(1, 4))
def test_whole_sizes_are_those_whose_gpus_are_a_multiple_of_a_replica(
    roles: tuple[Role, ...], tp: int, pp: int
) -> None:
    found = list(whole_steps(roles, ParallelPlan(tp, pp)))
    if not steps(roles):
        assert found == [0], "a gang of one size has that one"
    else:
        assert found == [less for less in range(steps(roles) + 1) if not gpus_of(fewer(roles, less)) % (tp * pp)]


@given(st.lists(ROLES, min_size=1, max_size=2).map(tuple), st.integers(1, 6), st.integers(1, 4))
def test_the_least_of_a_gang_is_its_smallest_whole_size(roles: tuple[Role, ...], tp: int, pp: int) -> None:
    plan = ParallelPlan(tp, pp)
    gang = of_whole_replicas(Gang(roles), plan)
    assert [role.replicas_max for role in gang.roles] == [role.replicas_max for role in roles]
    if whole_steps(roles, plan) and steps(roles):
        assert gang.gpus_min % (tp * pp) == 0
        assert gang.gpus_min >= Gang(roles).gpus_min


def test_replicas_that_are_elastic_themselves_rule_nothing_out() -> None:
    roles = (Role("r", 1, 3, members=(Role("w", 1, 2, Task(1)),)),)
    assert list(whole_steps(roles, ParallelPlan(4))) == [0, 1, 2]
