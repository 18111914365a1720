"""Blocks that move from moment to moment against those that are laid on nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.cluster.capacity import CPUS, Booking, Capacity
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.device import Mode, Portion
from phalanx.cluster.topology import Topology
from phalanx.engine.reserve.blocks import Blocks

NODES = 3
CLUSTER = Cluster(tuple(Node(f"n{i}", ("r0",), 4, cpus_milli=8_000) for i in range(NODES)), ("rack", "node"))

BOOKINGS = st.builds(
    lambda node, devices, cpus: Booking(node, devices, ((CPUS, cpus),) if cpus else ()),
    st.integers(0, NODES - 1),
    st.integers(0, 15),
    st.sampled_from([0, 0, 1_000, 5_000]),
)
RESERVED = st.lists(st.lists(BOOKINGS, min_size=1, max_size=3).map(tuple), max_size=4)


def free(capacity: Capacity) -> tuple[object, ...]:
    """All that is free, and how many tasks there are on each node."""
    return list(capacity.free), list(capacity.amounts[CPUS].free), capacity.free_total, list(capacity.tasks)


def with_some_held(held: list[Booking]) -> Capacity:
    """A cluster with bookings held, those that find room."""
    capacity = Capacity(Topology(CLUSTER))
    for each in held:
        cpus = sum(amount for _, amount in each.needs)
        if each.devices & ~capacity.free[each.node] == 0 and cpus <= capacity.amounts[CPUS].free[each.node]:
            capacity.hold(each)
    return capacity


@given(st.lists(BOOKINGS, max_size=4), RESERVED, RESERVED)
def test_blocks_that_are_laid_anew_hold_what_they_would_if_none_had_been_laid_before(
    held: list[Booking], first: list[tuple[Booking, ...]], then: list[tuple[Booking, ...]]
) -> None:
    moved, plain = with_some_held(held), with_some_held(held)
    blocks = Blocks(moved)
    blocks.lay(first)
    blocks.lay(then)
    Blocks(plain).lay(then)

    assert free(moved) == free(plain)


@given(st.lists(BOOKINGS, max_size=4), RESERVED)
def test_nothing_that_is_reserved_is_free_while_it_is_blocked_and_all_is_as_before_once_it_is_lifted(
    held: list[Booking], reserved: list[tuple[Booking, ...]]
) -> None:
    capacity = with_some_held(held)
    before = free(capacity)
    blocks = Blocks(capacity)
    blocks.lay(reserved)

    assert not any(capacity.free[each.node] & each.devices for bookings in reserved for each in bookings)
    blocks.lift()
    assert free(capacity) == before


@given(st.lists(BOOKINGS, min_size=1, max_size=4), RESERVED)
def test_what_somebody_leaves_meanwhile_is_blocked_too(
    held: list[Booking], reserved: list[tuple[Booking, ...]]
) -> None:
    capacity, plain = with_some_held(held[:1]), with_some_held([])
    blocks = Blocks(capacity)
    blocks.lay(reserved)
    capacity.release(held[0])
    blocks.lay(reserved)
    Blocks(plain).lay(reserved)

    assert free(capacity) == free(plain)


def test_a_shared_device_that_is_closed_takes_nobody_and_is_blocked_for_a_share_once_it_is_left() -> None:
    """half shares the device until it leaves; it is reserved whole first, then for a share."""
    half = Booking(0, 1, (), Portion(Mode.FRACTION, 500, 0), "half")
    capacity = with_some_held([])
    capacity.hold(half)
    before = free(capacity), capacity.usable_shares(0)
    blocks = Blocks(capacity)
    blocks.close([(Booking(0, 1, ()),)])
    blocks.lay([(Booking(0, 1, ()),)])
    assert not capacity.usable_shares(0)
    capacity.release(half)
    blocks.lay([(Booking(0, 1, (), Portion(Mode.FRACTION, 300, 0)),)])
    blocks.close([])
    assert not capacity.free[0] & 1
    blocks.lift()
    capacity.hold(half)
    assert (free(capacity), capacity.usable_shares(0)) == before
