"""Gangs that were taken on: what follows from one is worked out once for all jobs that ask for the same."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.engine.state.records import gpus_needed, need_of, tasks_of
from phalanx.policy.view import Usage
from phalanx.workload.gang import Gang, Task

KNOWN_MAX = 10_000
"""Gangs that are remembered: past that many all are forgotten, which costs time and changes nothing."""


class KnownGang(NamedTuple):
    """The tasks of a gang by the paths of their roles, what it takes at its smallest, and the whole GPUs of that."""

    tasks: dict[str, Task]
    need: Usage
    gpus_min: int


class Gangs:
    """The gangs that one cluster has taken on. A gang among them need not be checked again."""

    def __init__(self) -> None:
        self._known: dict[Gang, KnownGang] = {}

    def get(self, gang: Gang) -> KnownGang | None:
        """What is known of a gang; None if no job asked for it yet."""
        return self._known.get(gang)

    def learn(self, gang: Gang) -> KnownGang:
        """What follows from a gang that is taken on."""
        known = self._known.get(gang)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            tasks = tasks_of(gang.roles)
            known = self._known[gang] = KnownGang(tasks, need_of(gang.roles), gpus_needed(gang, tasks))
        return known
