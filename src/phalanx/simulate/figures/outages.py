"""Outages: when which node took no new work, from what became of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.cluster.cluster import Health
from phalanx.simulate.figures.result import Outage


def outages(changes: Iterable[tuple[int, str, Health]], now_ms: int) -> list[Outage]:
    """From changes in the order of time: each lasts until the next of its node, or until now."""
    since: dict[str, tuple[int, Health]] = {}
    found: list[Outage] = []
    for at_ms, node, health in changes:
        began = since.pop(node, None)
        if began is not None and at_ms > began[0]:
            found.append(Outage(node, began[1].value, began[0] / 1000, at_ms / 1000))
        if health is not Health.HEALTHY:
            since[node] = (at_ms, health)
    rest = [(node, *began) for node, began in since.items() if now_ms > began[0]]
    return [*found, *(Outage(node, health.value, at_ms / 1000, now_ms / 1000) for node, at_ms, health in rest)]
