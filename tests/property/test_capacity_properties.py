"""The indexes of free capacity against a plain model that counts everything anew."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from phalanx.cluster.bits import from_flags, lowest, members, span
from phalanx.cluster.capacity import CPUS, MEMORY, Booking, Capacity
from phalanx.cluster.cluster import Health
from phalanx.cluster.layout import Layout
from phalanx.cluster.topology import Topology
from strategies import CLUSTERS

NUMBERS = st.integers(0, 1_000)
AMOUNTS = st.sampled_from([0, 0, 1_000, 2_500])


class Ledger(RuleBasedStateMachine):
    """Bookings are held, ceded, claimed and given back in any order the capacity allows."""

    @initialize(name=st.sampled_from(sorted(CLUSTERS)))
    def define(self, name: str) -> None:
        self.topology = Topology(CLUSTERS[name]())
        self.capacity = Capacity(self.topology)
        self.held: list[Booking] = []
        self.ceding: list[Booking] = []
        self.claims: list[Booking] = []
        self.sick: set[tuple[int, int]] = set()
        self.health = [Health.HEALTHY] * len(self.topology.nodes)

    def free(self, node: int) -> set[int]:
        """Free devices, from the list of bookings."""
        if self.health[node] is not Health.HEALTHY:
            return set()
        taken = {device for each in (*self.held, *self.claims) if each.node == node for device in members(each.devices)}
        return {i for i in range(self.topology.nodes[node].gpus) if i not in taken and (node, i) not in self.sick}

    def free_amount(self, node: int, number: int) -> int:
        def total(bookings: list[Booking]) -> int:
            return sum(amount for each in bookings if each.node == node for n, amount in each.needs if n == number)

        held = total(self.held)
        promised = held - total(self.ceding) + total(self.claims)
        return self.capacity.amounts[number].total[node] - max(held, promised)

    def booking(self, number: int, count: int, cpus: int, ceding: bool = False) -> Booking | None:
        """A booking on a node that has room for it; a claim may also lie on what is being ceded."""
        node = number % len(self.topology.nodes)
        devices = self.free(node)
        if ceding and self.health[node] is Health.HEALTHY:
            claimed = {d for each in self.claims if each.node == node for d in members(each.devices)}
            devices |= {d for each in self.ceding if each.node == node for d in members(each.devices)} - claimed
        if len(devices) < count or self.free_amount(node, CPUS) < cpus:
            return None
        taken = sum(1 << device for device in sorted(devices)[:count])
        return Booking(node, taken, ((CPUS, cpus),) if cpus else ())

    @rule(number=NUMBERS, count=st.integers(0, 4), cpus=AMOUNTS)
    def hold(self, number: int, count: int, cpus: int) -> None:
        booking = self.booking(number, count, cpus)
        if booking is not None:
            self.capacity.hold(booking)
            self.held.append(booking)

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS)
    def cede(self, number: int) -> None:
        booking = self.held[number % len(self.held)]
        if not any(booking is each for each in self.ceding):
            self.capacity.cede(booking)
            self.ceding.append(booking)

    @rule(number=NUMBERS, count=st.integers(0, 4), cpus=AMOUNTS)
    def claim(self, number: int, count: int, cpus: int) -> None:
        booking = self.booking(number, count, cpus, ceding=True)
        if booking is not None:
            self.capacity.claim(booking)
            self.claims.append(booking)

    @precondition(lambda self: self.claims)
    @rule(number=NUMBERS)
    def unclaim(self, number: int) -> None:
        self.capacity.unclaim(self.claims.pop(number % len(self.claims)))

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS)
    def release(self, number: int) -> None:
        booking = self.held.pop(number % len(self.held))
        if any(booking is each for each in self.ceding):
            self.ceding = [each for each in self.ceding if each is not booking]
            self.capacity.keep(booking)
        self.capacity.release(booking)

    @rule(number=NUMBERS, health=st.sampled_from(list(Health)))
    def node_health(self, number: int, health: Health) -> None:
        node = number % len(self.topology.nodes)
        self.health[node] = health
        self.capacity.set_health(node, health)

    @rule(number=NUMBERS, device=st.integers(0, 3), health=st.sampled_from(list(Health)))
    def device_health(self, number: int, device: int, health: Health) -> None:
        node = number % len(self.topology.nodes)
        device %= self.topology.nodes[node].gpus
        self.sick.discard((node, device))
        if health is not Health.HEALTHY:
            self.sick.add((node, device))
        self.capacity.set_device_health(node, device, health)

    @rule(number=NUMBERS, count=st.integers(0, 4), cpus=AMOUNTS)
    def a_step_undone_leaves_no_trace(self, number: int, count: int, cpus: int) -> None:
        before = self.capacity.fingerprint()
        booking = self.booking(number, count, cpus)
        if booking is not None:
            self.capacity.hold(booking)
            self.capacity.cede(booking)
            self.capacity.keep(booking)
            self.capacity.release(booking)
            self.capacity.claim(booking)
            self.capacity.unclaim(booking)
        assert self.capacity.fingerprint() == before

    @rule(need=st.integers(1, 9_000))
    def which_nodes_have_at_least(self, need: int) -> None:
        for number in (CPUS, MEMORY):
            expected = [self.free_amount(i, number) >= need for i in range(len(self.topology.nodes))]
            assert self.capacity.amounts[number].at_least(need) == from_flags(expected)

    @rule(data=st.data(), gpus=st.integers(1, 4), tasks=st.integers(1, 6))
    def which_domains_have_room(self, data: st.DataObject, gpus: int, tasks: int) -> None:
        if not self.topology.levels:
            return
        level = data.draw(st.sampled_from(self.topology.levels))
        kinds = data.draw(st.sampled_from([(i,) for i in range(len(self.capacity.gpu_types))]))
        room = {
            domain.name: sum(
                len(self.free(node)) // gpus
                for node in range(domain.first, domain.last)
                if self.capacity.type_of[node] in kinds
            )
            for domain in self.topology.domains[level]
        }
        found = list(self.capacity.rooms(level, kinds, gpus, tasks, 0, len(self.topology.nodes)))
        assert sorted(each.name for each in found) == sorted(name for name, fits in room.items() if fits >= tasks)
        assert [room[each.name] for each in found] == sorted(room[each.name] for each in found), "the tightest first"

    @invariant()
    def every_index_says_what_the_bookings_say(self) -> None:
        if not hasattr(self, "capacity"):
            return
        capacity = self.capacity
        capacity.check()
        free = [self.free(i) for i in range(len(self.topology.nodes))]
        assert [set(members(each)) for each in capacity.free] == free
        for nodes in (self.topology.everything, capacity.idle):
            gpus = sum(len(free[node]) for node in members(nodes))
            assert capacity.free_gpus(nodes) == gpus
            assert capacity.has_free(nodes, gpus)
            assert not capacity.has_free(nodes, gpus + 1)
        counts = Counter(map(len, free))
        assert [each.bit_count() for each in capacity.with_free] == [counts[i] for i in range(len(capacity.with_free))]
        assert set(members(capacity.open)) == {i for i, each in enumerate(self.health) if each is Health.HEALTHY}
        idle = {i for i, each in enumerate(free) if len(each) == self.topology.nodes[i].gpus}
        assert set(members(capacity.idle)) == idle


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=50, stateful_step_count=40)


@given(st.sets(st.integers(0, 300)))
def test_a_set_of_numbers_survives_as_an_integer(numbers: set[int]) -> None:
    bits = sum(1 << number for number in numbers)
    assert list(members(bits)) == sorted(numbers)
    assert not numbers or lowest(bits) == min(numbers)
    assert from_flags(i in numbers for i in range(301)) == bits


@given(st.integers(0, 200), st.integers(0, 200))
def test_a_span_holds_its_first_and_not_its_last(first: int, length: int) -> None:
    assert list(members(span(first, first + length))) == list(range(first, first + length))


@given(st.data(), st.integers(1, 16))
def test_picked_devices_are_free_and_as_close_as_they_can_be(data: st.DataObject, gpus: int) -> None:
    split = data.draw(st.sampled_from([(), (("socket", 2),), (("socket", 2), ("switch", 4))]))
    layout = Layout(gpus, split)
    free = data.draw(st.integers(0, (1 << gpus) - 1))
    count = data.draw(st.integers(0, free.bit_count()))
    picked = layout.pick(free, count)
    assert picked & ~free == 0
    assert picked.bit_count() == count
    for level, groups in layout.levels.items():
        fitting = [group for group in groups if (group & free).bit_count() >= count]
        inside = layout.pick_within(level, free, count)
        assert bool(inside) == bool(fitting and count)
        assert not inside or any(inside & ~group == 0 for group in groups)
        assert not fitting or level != "socket" or any(picked & ~group == 0 for group in fitting)
