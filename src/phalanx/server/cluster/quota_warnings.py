"""Warnings about queues that are valid but rarely meant: a queue left with no GPUs, a limit above the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.queues import RESOURCES, with_unit
from phalanx.engine.quota.quotas import Quotas


def quota_warnings(cluster: Cluster) -> Iterator[str]:
    """One line for each queue and resource, with the figures."""
    yield from _without_any(cluster)
    yield from _limits_above_all(cluster)


def _without_any(cluster: Cluster) -> Iterator[str]:
    """Queues for which the guarantees and limits of queues leave nothing of a resource that the cluster has."""
    quotas = Quotas(cluster)
    for path in quotas.leaves():
        for resource, name in enumerate(RESOURCES):
            if cluster.total[resource] and quotas.upper_bound(path, resource) <= 0:
                because = quotas.upper_bounds(path, resource)[0].words(path, resource)
                yield f"queue {path} is left with 0 {name}, and jobs that need any are refused there: {because}"


def _limits_above_all(cluster: Cluster) -> Iterator[str]:
    for queue in cluster.queues:
        for resource, limit in enumerate(queue.limit):
            there_is = cluster.total[resource]
            if limit is not None and there_is is not None and limit > there_is:
                most = with_unit(limit, resource)
                yield f"queue {queue.path} has a limit of {most}, but the cluster has {with_unit(there_is, resource)}"
