"""A cluster file without hardware: queues, policy, maintenance and defragmentation, for a cluster that there is."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.limits import CLUSTER_LIMITS
from phalanx.cluster.formats.maintenance import read_maintenance
from phalanx.cluster.formats.native import read_period
from phalanx.cluster.formats.queues import read_patience, read_queues
from phalanx.cluster.formats.recovery import read_recovery
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.queues import Queue
from phalanx.cluster.recovery import Recovery
from phalanx.document import Field, read_document
from phalanx.document.tree import Map

SETTING_KEYS = ("version", "policy", "queues", "maintenance", "defragment", "patience", "recovery")


@dataclass(frozen=True, slots=True)
class Settings:
    """What is to be different of a cluster; None leaves as it is."""

    queues: tuple[Queue, ...] | None = None
    maintenance: tuple[Maintenance, ...] | None = None
    defragment_ms: int | None = None
    patience_ms: int | None = None
    policy: str | None = None
    recovery: Recovery | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What is to be different, by the names that a Cluster has for it."""
        every = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in every.items() if value is not None}

    def on(self, cluster: Cluster) -> Cluster:
        """A cluster with these settings."""
        return replace(cluster, **self.said)


def is_settings(text: str, source: str) -> bool:
    """Whether a file says nothing of hardware, and something of the rest."""
    document = read_document(text, source, CLUSTER_LIMITS)
    said = [key for key in SETTING_KEYS if document.has(key)]
    return isinstance(document.value, Map) and len(document.value.parts) == len(said) and said not in ([], ["version"])


def read_settings(text: str, source: str, cluster: Cluster, now_ms: int) -> Settings:
    """Reads settings of a cluster. `source` names the file in errors; nothing is opened. `+2h` counts from `now_ms`."""
    found = read_document(text, source, CLUSTER_LIMITS).mapping(SETTING_KEYS)
    found.get("version", lambda version: version.integer(1, 1), 1)
    return Settings(
        queues=found.get("queues", lambda queues: read_queues(queues, cluster.total), None),
        maintenance=found.get("maintenance", lambda windows: read_maintenance(windows, cluster.nodes, now_ms), None),
        defragment_ms=found.get("defragment", read_period, None),
        patience_ms=found.get("patience", read_patience, None),
        policy=found.get("policy", Field.title, None),
        recovery=found.get("recovery", lambda recovery: read_recovery(recovery, cluster), None),
    )
