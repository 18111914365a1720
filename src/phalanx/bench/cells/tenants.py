"""Tenants of a shared cluster and their jobs, drawn at random: the load of HiveD's introduction, in size and kind."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from phalanx.placement.cells.request import Member

GPUS_PER_NODE = 8
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
HOURS_MEAN, HOURS_MAX = 12.0, 96.0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: its nodes, how much of them its jobs keep busy, and how often they ask for how many GPUs."""

    name: str
    nodes: int
    load: float
    sizes: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """One job."""

    name: str
    tenant: str
    submit_ms: int
    duration_ms: int
    gpus: int

    @property
    def members(self) -> tuple[Member, ...]:
        """Whole nodes for more than a node's GPUs."""
        if self.gpus <= GPUS_PER_NODE:
            return (Member(1, self.gpus),)
        return (Member(self.gpus // GPUS_PER_NODE, GPUS_PER_NODE),)


SMALL = ((1, 0.70), (2, 0.20), (4, 0.10))
MIXED = ((1, 0.60), (2, 0.12), (4, 0.10), (8, 0.16), (16, 0.02))
LARGE = ((8, 0.70), (16, 0.20), (32, 0.10))

KINDS = (
    (60, 0.42, SMALL),
    (54, 0.42, MIXED),
    (45, 0.42, SMALL),
    (36, 0.95, LARGE),
    (27, 0.42, MIXED),
    (18, 0.42, SMALL),
    (12, 0.95, LARGE[:2]),
    (9, 0.42, MIXED),
    (9, 0.42, SMALL),
    (5, 0.42, SMALL),
    (4, 0.80, LARGE[:1]),
)
"""Nodes, load and sizes of jobs: 279 nodes, half of them busy with small jobs, and three tenants that want nodes."""


def tenants(shrink: int) -> tuple[Tenant, ...]:
    """Eleven tenants, each so many times smaller than the real one."""
    return tuple(Tenant(f"t{i}", max(nodes // shrink, 2), load, sizes) for i, (nodes, load, sizes) in enumerate(KINDS))


def jobs_of(tenant: Tenant, days: int, seed: int) -> list[Work]:
    """Jobs that come at random and are mostly short and sometimes very long, as training jobs are.

    No job asks for more than half of what its tenant has. Durations are lognormal with sigma 1.5, about as wide as in
    published traces, and cut at four days, which makes the load smaller than it says.
    """
    draw = random.Random(f"{seed}/{tenant.name}")
    sizes, shares = zip(*tenant.sizes, strict=True)
    limit = max(tenant.nodes * GPUS_PER_NODE // 2, GPUS_PER_NODE)
    gpus_mean = sum(min(size, limit) * share for size, share in tenant.sizes) / sum(shares)
    per_hour = tenant.load * tenant.nodes * GPUS_PER_NODE / (gpus_mean * HOURS_MEAN)
    sigma = 1.5
    mu = math.log(HOURS_MEAN) - sigma * sigma / 2
    jobs: list[Work] = []
    now = 0.0
    while True:
        now += draw.expovariate(per_hour) * HOUR_MS
        if now >= days * DAY_MS:
            return jobs
        hours = min(draw.lognormvariate(mu, sigma), HOURS_MAX)
        gpus = min(draw.choices(sizes, shares)[0], limit)
        jobs.append(Work(f"{tenant.name}-{len(jobs)}", tenant.name, int(now), max(int(hours * HOUR_MS), 1000), gpus))
