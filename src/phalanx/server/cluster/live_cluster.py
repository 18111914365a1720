"""What a live server adds to a cluster of which its file says nothing."""

from __future__ import annotations

from dataclasses import replace

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.recovery import Recovery

PATIENCE_MS = 1_800_000
"""Half an hour: longer than most jobs run, so that the order of the policy holds nearly always."""


def live(cluster: Cluster) -> Cluster:
    """A cluster as a server runs it: no job is passed for ever, and one that lost a node goes on where it was."""
    patience_ms = cluster.patience_ms if cluster.patience_ms is not None else PATIENCE_MS
    return replace(cluster, patience_ms=patience_ms, recovery=cluster.recovery or Recovery())
