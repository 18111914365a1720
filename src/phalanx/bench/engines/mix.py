"""A mix of short gangs that come one after the other, more than there is room for at times."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

NODES, GPUS = 4, 4
SHAPES = ((1, 1), (1, 1), (1, 1), (1, 2), (1, 4), (2, 4))
"""Tasks, and GPUs of each."""

SHORTEST_S, LONGEST_S, BETWEEN_S = 1.0, 6.0, 0.8


class MixJob(NamedTuple):
    """A job that sleeps. It is submitted `after_s` the one before it."""

    name: str
    tasks: int
    gpus: int
    duration_s: float
    after_s: float

    @property
    def body(self) -> dict[str, Any]:
        """The job as it is submitted to phalanx."""
        role = {"role": "worker", "replicas": self.tasks, "gpus": self.gpus}
        return {"name": self.name, "gang": [role], "command": ["sleep", str(self.duration_s)]}


def mix(count: int, seed: int) -> tuple[MixJob, ...]:
    """So many jobs, the same for a seed."""
    chance = random.Random(seed)
    return tuple(_job(chance, number) for number in range(count))


def _job(chance: random.Random, number: int) -> MixJob:
    tasks, gpus = chance.choice(SHAPES)
    duration_s = round(chance.uniform(SHORTEST_S, LONGEST_S), 2)
    return MixJob(f"job-{number}", tasks, gpus, duration_s, round(chance.expovariate(1 / BETWEEN_S), 3))
