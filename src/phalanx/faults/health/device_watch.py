"""The watch over single devices: one on which more fails than on all others is taken out alone, and its node stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phalanx.cluster.bits import members
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.faults.health.blame import Blame
from phalanx.faults.health.quarantine import Change, Quarantine, Rules
from phalanx.protocol.event import DeviceHealthChanged, Finding


class DeviceHealths(Mapping[str, Health]):
    """The health of devices by their names: a few are noted down, all others are healthy."""

    def __init__(self, state: State, decided: list[Change]) -> None:
        self._state = state
        self._decided = {each.node: each.health for each in decided}

    def __getitem__(self, name: str) -> Health:
        node, device = parts_of(name)
        known = self._state.capacity.device_health.get((self._state.topology.number[node], device), Health.HEALTHY)
        return self._decided.get(name, known)

    def __iter__(self) -> Iterator[str]:
        return names_in(self._state)

    def __len__(self) -> int:
        return sum(1 for _ in names_in(self._state))


class DeviceWatch:
    """Follows the devices of one State by the rules for nodes. Where gangs hold whole nodes no device stands out."""

    def __init__(self, state: State, rules: Rules) -> None:
        self._state, self._topology = state, state.topology
        self._quarantine = Quarantine(Blame.of(names_in(state)), rules)
        nodes = state.topology.nodes
        suspect = [key for key, health in state.capacity.device_health.items() if health is Health.SUSPECT]
        self._quarantine.adopt((device_name(nodes[number].name, device) for number, device in suspect), state.now)
        self._decided: list[Change] = []
        self._is_news = False

    def note(self, job: str, attempt: AttemptRecord, failed: bool, now: int) -> None:
        """Takes note of an attempt that ends, before it is folded in."""
        nodes = self._state.topology.nodes
        held = frozenset(
            device_name(nodes[booking.node].name, device)
            for booking in attempt.bookings
            for device in members(booking.devices)
        )
        self._decided.extend(self._quarantine.ended(job, held, failed, now))
        self._is_news = True

    def note_finding(self, job: str, finding: Finding, now: int) -> None:
        """Takes note of what a launcher has found of a rank with a device of its own."""
        if finding.device >= 0:
            self._quarantine.blame.found(job, device_name(finding.node, finding.device), finding.kind, now)
            self._is_news = True

    def next_ms(self) -> int | None:
        """When the quarantine of a device ends next."""
        return self._quarantine.next_ms()

    def changes(self, now: int) -> list[DeviceHealthChanged]:
        """Devices that take no new work from now on, or do so again."""
        if self._state.topology is not self._topology:
            self._topology, self._is_news = self._state.topology, True
            self._quarantine.blame.follow(names_in(self._state), now)
        due_ms = self._quarantine.next_ms()
        if not self._is_news and (due_ms is None or now < due_ms):
            return []
        gone = [name for name in self._quarantine.sentences if name not in self._quarantine.blame.books]
        for name in gone:
            del self._quarantine.sentences[name]
        decided = [*self._decided, *self._quarantine.changes(DeviceHealths(self._state, self._decided), now)]
        self._decided, self._is_news = [], False
        return [DeviceHealthChanged(*parts_of(each.node), each.health, each.reason) for each in decided]


def device_name(node: str, device: int) -> str:
    """What a device is called among all."""
    return f"{node}:{device}"


def parts_of(name: str) -> tuple[str, int]:
    """The node and the number of a device."""
    node, _, device = name.rpartition(":")
    return node, int(device)


def names_in(state: State) -> Iterator[str]:
    """All devices of a cluster but for those that are their node's only one: there the node itself is to blame."""
    nodes = (node for node in state.topology.nodes if node.gpus > 1)
    return (device_name(node.name, device) for node in nodes for device in range(node.gpus))
