"""The time of one decision in crowded clusters, as jobs end and others come: the median, and the slowest of all."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import process_time

from phalanx.bench.collector import as_in_a_server
from phalanx.bench.row import Row, Tell, row
from phalanx.bench.tenants.borrowing import GPUS, SEED, TURN_MS, Crowd, a_node, tree
from phalanx.cluster.cluster import Cluster
from phalanx.engine.turn import record
from phalanx.protocol.event import Event, JobSubmitted

MEDIAN_TARGET_MS = 20.0
SLOWEST_TARGET_MS = 150.0
COMING = 8
"""Jobs that end, and jobs that come, between two decisions."""

OVERDUE_MS = 60_000
"""The patience of clusters whose pending jobs are overdue: all that were there at the beginning are."""


@dataclass(frozen=True, slots=True)
class Crowded:
    """A policy and what makes a decision hard for it. Queues of several levels are given by their branches."""

    policy: str
    requests: int
    branches: tuple[int, ...]
    priorities: int = 1
    is_overdue: bool = False

    @property
    def name(self) -> str:
        queues = "×".join(map(str, self.branches))
        parts = [self.policy, f"{self.requests} requests", f"{queues} queues"]
        parts += [f"{self.priorities} priorities"] if self.priorities > 1 else []
        parts += ["all overdue"] if self.is_overdue else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster and the load are."""

    nodes: int
    waiting: int
    turns: int
    crowds: tuple[Crowded, ...]


FULL = Size(
    nodes=64,
    waiting=1_500,
    turns=12,
    crowds=(
        Crowded("phalanx", 60, (64,)),
        Crowded("phalanx", 60, (4, 4, 2, 2)),
        Crowded("priority", 60, (64,), priorities=50),
        Crowded("priority", 60, (4, 4, 2, 2), priorities=50),
        Crowded("kai", 60, (64,)),
        Crowded("kai", 60, (256,)),
        Crowded("kai", 60, (4, 4, 4, 4)),
        Crowded("phalanx", 60, (64,), is_overdue=True),
        Crowded("fair", 60, (4, 4, 2, 2), is_overdue=True),
    ),
)
QUICK = Size(nodes=8, waiting=60, turns=3, crowds=(FULL.crowds[0], FULL.crowds[-1]))


def run(size: Size, tell: Tell) -> list[Row]:
    """Processor time of decisions. The garbage collector is set as a server sets it."""
    rows: list[Row] = []
    for crowded in size.crowds:
        tell(f"tenants: decisions of {crowded.name}")
        with as_in_a_server():
            took_ms = _decisions(size, crowded)
        rows.append(row(f"decision, {crowded.name}: median", median(took_ms), "ms", MEDIAN_TARGET_MS))
        rows.append(row(f"decision, {crowded.name}: slowest", max(took_ms), "ms", SLOWEST_TARGET_MS))
    return rows


def _decisions(size: Size, crowded: Crowded) -> list[float]:
    nodes = tuple(a_node(i) for i in range(size.nodes))
    queues = tree(crowded.branches, GPUS * size.nodes)
    cluster = Cluster(nodes, ("rack", "node"), queues=queues, patience_ms=OVERDUE_MS if crowded.is_overdue else None)
    crowd = Crowd(cluster, crowded.policy, SEED, crowded.requests)
    for _ in range(size.waiting):
        record(crowd.state, crowd.journal, JobSubmitted(crowd.job(crowded.priorities)), 0)
    pending = crowd.answers(crowd.take([]))
    crowd.now += OVERDUE_MS if crowded.is_overdue else 0
    took_ms = []
    for _ in range(size.turns):
        crowd.now += TURN_MS
        coming: list[Event] = [JobSubmitted(crowd.job(crowded.priorities)) for _ in range(COMING)]
        events = [*pending, *crowd.ends(COMING), *coming]
        start = process_time()
        plan = crowd.take(events)
        took_ms.append(1000 * (process_time() - start))
        pending = crowd.answers(plan)
    return took_ms
