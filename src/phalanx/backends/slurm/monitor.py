"""How Slurm's nodes are, and what work that phalanx did not submit holds of them, told as it changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from phalanx.backends.local.folder import read_paper, write_durably
from phalanx.backends.slurm.attempt import SlurmAttempt
from phalanx.backends.slurm.nodes import SlurmNode
from phalanx.cluster.cluster import Health
from phalanx.protocol.event import Event, ForeignUse, NodeHealthChanged

NOT_THERE = "Slurm has no node of that name"


class Monitor:
    """Compares what Slurm says with what was told last. Healths are kept beyond a restart: a node that phalanx itself
    was told to drain is not made healthy by it.
    """

    def __init__(self, names: Collection[str], folder: Path) -> None:
        self._names = names
        self._path = str(folder / "slurm-nodes.json")
        self._told: dict[str, list[str]] = read_paper(self._path) or {}
        self._foreign: dict[str, ForeignUse] = {}
        self.addresses: dict[str, str] = {}

    def look(self, nodes: Iterable[SlurmNode], attempts: Collection[SlurmAttempt]) -> list[Event]:
        """What has changed."""
        found = {node.name: node for node in nodes if node.name in self._names}
        self.addresses = {node.name: node.address for node in found.values()}
        news: list[Event] = list(self._healths(found))
        moving = {node for each in attempts if each.start or each.is_leaving for node in each.nodes}
        for node in found.values():
            if node.name not in moving:
                news += self._foreign_use(node, attempts)
        return news

    def _healths(self, found: dict[str, SlurmNode]) -> Iterator[Event]:
        now = {
            name: [found[name].health.value, found[name].told] if name in found else [Health.FAILED.value, NOT_THERE]
            for name in self._names
        }
        healthy = [Health.HEALTHY.value, ""]
        changed = [name for name in self._names if now[name][0] != self._told.get(name, healthy)[0]]
        for name in changed:
            health, reason = now[name]
            self._told[name] = now[name]
            yield NodeHealthChanged(name, Health(health), "" if health == Health.HEALTHY.value else reason)
        if changed:
            write_durably(self._path, self._told)

    def _foreign_use(self, node: SlurmNode, attempts: Collection[SlurmAttempt]) -> Iterator[Event]:
        """What is used of a node beyond what our attempts are booked with."""
        ours = {device for each in attempts for device in each.holds(node.name)}
        devices = tuple(device for device in node.used_devices if device not in ours)
        use = ForeignUse(
            node.name,
            devices,
            max(node.used_gpus - len(ours) - len(devices), 0),
            max(1000 * node.used_cpus - sum(each.cpus_milli.get(node.name, 0) for each in attempts), 0),
            max(node.used_memory_mb - sum(each.memory_mb.get(node.name, 0) for each in attempts), 0),
        )
        if use != self._foreign.get(node.name):
            self._foreign[node.name] = use
            yield use
