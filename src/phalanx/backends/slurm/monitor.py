"""How Slurm's nodes are, and what work that phalanx did not submit holds of them, told as it changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from phalanx.backends.local.folder import read_paper, write_durably
from phalanx.backends.slurm.attempt import SlurmAttempt
from phalanx.backends.slurm.held import Held, Holding
from phalanx.backends.slurm.nodes import SlurmNode
from phalanx.cluster.cluster import Cluster, Health
from phalanx.protocol.event import Event, ForeignUse, NodeHealthChanged

NOT_THERE = "Slurm has no node of that name"


class Monitor:
    """Compares what Slurm says with what was told last. Healths are kept beyond a restart: a node that phalanx itself
    was told to drain is not made healthy by it.
    """

    def __init__(self, cluster: Callable[[], Cluster], folder: Path) -> None:
        self._cluster = cluster
        self._path = str(folder / "slurm-nodes.json")
        self._told: dict[str, list[str]] = read_paper(self._path) or {}
        self._foreign: dict[str, ForeignUse] = {}
        self.addresses: dict[str, str] = {}

    def look(
        self, nodes: Iterable[SlurmNode], attempts: Collection[SlurmAttempt], held: Mapping[str, Holding]
    ) -> list[Event]:
        """What has changed. `held` is what jobs hold that start or end; on nodes of others that do, nothing is told."""
        names = tuple(node.name for node in self._cluster().nodes)
        found = {node.name: node for node in nodes if node.name in names}
        self.addresses = {node.name: node.address for node in found.values()}
        news: list[Event] = list(self._healths(names, found))
        unknown = {node for each in attempts if each.is_moving and each.slurm_id not in held for node in each.nodes}
        for node in found.values():
            if node.name not in unknown:
                news += self._foreign_use(node, [_held_of(each, node.name, held) for each in attempts])
        return news

    def _healths(self, names: Collection[str], found: dict[str, SlurmNode]) -> Iterator[Event]:
        now = {
            name: [found[name].health.value, found[name].told] if name in found else [Health.FAILED.value, NOT_THERE]
            for name in names
        }
        healthy = [Health.HEALTHY.value, ""]
        changed = [name for name in names if now[name][0] != self._told.get(name, healthy)[0]]
        for name in changed:
            health, reason = now[name]
            self._told[name] = now[name]
            yield NodeHealthChanged(name, Health(health), "" if health == Health.HEALTHY.value else reason)
        if changed:
            write_durably(self._path, self._told)

    def _foreign_use(self, node: SlurmNode, held: Collection[Held]) -> Iterator[Event]:
        """What is used of a node beyond what our attempts hold."""
        ours = {device for each in held for device in each.devices}
        devices = tuple(device for device in node.used_devices if device not in ours)
        use = ForeignUse(
            node.name,
            devices,
            max(node.used_gpus - len(ours) - len(devices), 0),
            max(1000 * node.used_cpus - sum(each.cpus_milli for each in held), 0),
            max(node.used_memory_mb - sum(each.memory_mb for each in held), 0),
        )
        if use != self._foreign.get(node.name):
            self._foreign[node.name] = use
            yield use


def _held_of(attempt: SlurmAttempt, node: str, held: Mapping[str, Holding]) -> Held:
    """What one of ours has of a node: as booked, but the devices, and whether it is there yet, as Slurm says."""
    booked = Held(attempt.holds(node), attempt.cpus_milli.get(node, 0), attempt.memory_mb.get(node, 0))
    if not attempt.is_moving:
        return booked
    there = held.get(attempt.slurm_id, {}).get(node)
    return booked._replace(devices=there.devices) if there is not None else Held()
