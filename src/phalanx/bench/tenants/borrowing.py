"""Many tenants on one cluster: how fast gangs are admitted by quota and placed, and what making room costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from time import process_time

from phalanx.bench.collector import as_in_a_server
from phalanx.bench.row import Row, Tell, ratio, row
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.queues import Queue, Quota
from phalanx.engine.decide import cycle
from phalanx.engine.preempt.victims import VictimSearch
from phalanx.engine.state.journal import Count
from phalanx.engine.state.records import AttemptRecord, Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record, turn
from phalanx.protocol.action import Stop
from phalanx.protocol.event import AttemptEnded, ClusterDefined, Done, Event, JobSubmitted, Outcome, Progress
from phalanx.protocol.plan import Plan
from phalanx.workload.gang import Gang, Role, Task, Topology
from phalanx.workload.job import Job

SEED = 1
GPUS = 8
NODES_PER_RACK = 16
ENDS_PER_TURN = 50
"""Jobs that end while one decision is made, at the rates that are measured here."""

TURN_MS = 1_000
"""From one decision to the next: long before an attempt that was told to leave is told a second time."""

STREAM_TURN_MS = 60_000
"""From one group of submissions to the next where victims are counted. What is asked for is done long before."""

GANG_TARGET_MS = 1.0
VARIETY_TARGET = 1.5
"""How many times as long a gang may take with the most distinct requests as with the fewest."""

SIZES = ((1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (8, 1), (8, 2), (8, 4))
"""GPUs of a task and tasks of a gang: with and without a rack, twelve distinct requests."""

PLAIN_REQUESTS = 12
MEMORY_MB, NODE_MEMORY_MB = 1_000, 1_000_000
"""Host memory of a task, or a little more where there are more distinct requests; a node always has enough."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster and the load are. `requests` are numbers of distinct requests."""

    nodes: int
    waiting: int
    requests: tuple[int, ...]
    branches: tuple[int, ...]
    turns: int
    streams: int
    stream_turns: int


FULL = Size(
    nodes=640, waiting=50_000, requests=(12, 60, 400), branches=(10, 5, 4, 4), turns=40, streams=5, stream_turns=200
)
QUICK = Size(nodes=32, waiting=400, requests=(12, 60), branches=(2, 2, 2, 2), turns=3, streams=1, stream_turns=20)


def tree(branches: tuple[int, ...], gpus: int) -> tuple[Queue, ...]:
    """Queues as many levels deep as there are branches: the innermost deserve four fifths of all, half of them
    are guaranteed a fifth of that, and all may borrow.
    """
    leaves = 1
    for count in branches:
        leaves *= count
    each = 800 * gpus // leaves
    queues: list[Queue] = []
    paths = [""]
    for depth, count in enumerate(branches):
        paths = [f"{path}/q{i}".removeprefix("/") for path in paths for i in range(count)]
        if depth < len(branches) - 1:
            queues += [Queue(path) for path in paths]
    for i, path in enumerate(paths):
        queues.append(Queue(path, Quota(each // 5 if i % 2 else 0), Quota(each)))
    return tuple(queues)


class Crowd:
    """An engine with jobs of many queues, whose actions are all carried out at once."""

    def __init__(self, cluster: Cluster, policy: str, seed: int, requests: int = PLAIN_REQUESTS) -> None:
        self.rng = Random(seed)
        self.memories = -(-requests // PLAIN_REQUESTS)
        self.state = State()
        self.journal = Count()
        self.now = 0
        self.submitted = 0
        self.lost_gpu_ms = 0
        self.stopped = 0
        record(self.state, self.journal, ClusterDefined(cluster, policy), 0)
        self.queues = self.state.quotas.leaves() or ["default"]

    def job(self, priorities: int = 1) -> Job:
        """Half of the gangs must lie in one rack."""
        gpus, count = self.rng.choice(SIZES)
        self.submitted += 1
        topology = Topology("rack" if self.submitted % 2 else "")
        memory_mb = MEMORY_MB + self.submitted // 2 % self.memories
        gang = Gang((Role("worker", count, count, Task(gpus, memory_mb=memory_mb)),), topology)
        queue, priority = self.rng.choice(self.queues), self.rng.randrange(priorities)
        return Job(str(self.submitted), gang, queue=queue, priority=priority)

    def take(self, events: list[Event]) -> Plan:
        """One turn, and what it asks for done in the next."""
        before = {attempt.key: attempt for attempt in self.state.attempts_present()}
        plan = turn(self.state, self.journal, events, self.now)
        for action in plan.actions:
            if isinstance(action, Stop):
                victim = before[f"{action.id.job}/{action.id.attempt}"]
                self.lost_gpu_ms += victim.lost_gpu_ms(self.now)
                self.stopped += 1
        return plan

    def answers(self, plan: Plan) -> list[Event]:
        """Everything is done."""
        return [Done(action.id) for action in plan.actions]

    def settle(self, plan: Plan) -> None:
        """Has done what a plan asks for, and what is asked for then, each a turn later, until nothing is."""
        while plan.actions:
            self.now += TURN_MS
            plan = self.take(self.answers(plan))

    def ends(self, count: int) -> list[Event]:
        """Some of the running jobs end."""
        running = [attempt for attempt in self.state.attempts_present() if attempt.phase is Phase.RUNNING]
        ending = self.rng.sample(running, min(count, len(running)))
        return [AttemptEnded(attempt.job.id, attempt.number, Outcome.SUCCEEDED) for attempt in ending]


def admission(size: Size, tell: Tell) -> list[Row]:
    """Gangs admitted and placed per second of processor time: on an idle cluster until it is full, then as jobs end.

    The garbage collector is set as a server sets it.
    """
    rows: list[Row] = []
    for requests in size.requests:
        rows += _admission(size, requests, tell)
    most, fewest = size.requests[-1], size.requests[0]
    for when in ("until full", "under churn"):
        taken = [each["value"] for each in rows if each["name"].startswith(when) and each["name"].endswith("per gang")]
        name = f"{when}: time per gang, {most} requests / {fewest} requests"
        rows.append(row(name, ratio(taken[-1], taken[0]), "ratio", VARIETY_TARGET))
    return rows


def _admission(size: Size, requests: int, tell: Tell) -> list[Row]:
    nodes = tuple(a_node(i) for i in range(size.nodes))
    queues = tree(size.branches, GPUS * size.nodes)
    crowd = Crowd(Cluster(nodes, ("rack", "node"), queues=queues), "fair", SEED, requests)
    tell(f"tenants: {size.waiting} jobs in {len(queues)} queues, {requests} requests")
    for _ in range(size.waiting):
        record(crowd.state, crowd.journal, JobSubmitted(crowd.job()), 0)
    kind = f"{size.nodes} nodes, {len(queues)} queues, {size.waiting} waiting, {requests} requests"
    with as_in_a_server():
        return _admit(crowd, size, kind, tell)


def a_node(number: int) -> Node:
    return Node(f"n{number}", (f"r{number // NODES_PER_RACK}",), GPUS, memory_mb=NODE_MEMORY_MB)


def _admit(crowd: Crowd, size: Size, kind: str, tell: Tell) -> list[Row]:
    tell("tenants: until the cluster is full")
    with _steps() as steps:
        plan, filling_s = _timed(lambda: crowd.take([]))
    rows = [*_rates(f"until full, {kind}", len(plan.claims), filling_s), *_shares(f"until full, {kind}", steps)]
    tell("tenants: as jobs end")
    pending = crowd.answers(plan)
    placed, churning_s = 0, 0.0
    with _steps() as steps:
        for _ in range(size.turns):
            crowd.now += TURN_MS
            events = [*pending, *crowd.ends(ENDS_PER_TURN)]
            plan, took_s = _timed(lambda events=events: crowd.take(events))  # type: ignore[misc]
            pending = crowd.answers(plan)
            placed += len(plan.claims)
            churning_s += took_s
    return [*rows, *_rates(f"under churn, {kind}", placed, churning_s), *_shares(f"under churn, {kind}", steps)]


def _timed(run: Callable[[], Plan]) -> tuple[Plan, float]:
    start = process_time()
    plan = run()
    return plan, process_time() - start


def _rates(name: str, gangs: int, took_s: float) -> list[Row]:
    return [
        row(f"{name}: time per gang", 1000 * took_s / max(gangs, 1), "ms", GANG_TARGET_MS),
        row(f"{name}: gangs per second", gangs / max(took_s, 1e-9), "1/s"),
    ]


STEPS = {"candidates": "Candidates", "place": "_place", "make room": "_make_room", "lack": "lack"}
"""Steps of the cycle by the names they have there."""


@contextmanager
def _steps() -> Iterator[dict[str, float]]:
    """Measures the processor time that the steps of the cycle take, together."""
    took_s = dict.fromkeys(STEPS, 0.0)
    originals = {name: getattr(cycle, name) for name in STEPS.values()}

    def watched(step: str, original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            start = process_time()
            answer = original(*arguments)
            took_s[step] += process_time() - start
            return answer

        return call

    for step, name in STEPS.items():
        setattr(cycle, name, watched(step, originals[name]))
    try:
        yield took_s
    finally:
        for name, original in originals.items():
            setattr(cycle, name, original)


def _shares(name: str, steps: dict[str, float]) -> list[Row]:
    return [row(f"{name}: {step}", 1000 * took_s, "ms") for step, took_s in steps.items()]


def victims(size: Size, tell: Tell) -> list[Row]:
    """GPU time lost by jobs that are stopped, beside stopping the lowest priorities and the newest first."""
    lost = {"least loss": 0, "priority order": 0}
    stopped = dict.fromkeys(lost, 0)
    for stream in range(size.streams):
        tell(f"tenants: victims, stream {stream + 1} of {size.streams}")
        for way in lost:
            crowd = _stream(size, stream, way)
            lost[way] += crowd.lost_gpu_ms
            stopped[way] += crowd.stopped
    gpu_h = {way: each / 3.6e6 for way, each in lost.items()}
    return [
        row("GPU-hours lost to preemption: least loss / priority order", ratio(*gpu_h.values()), "ratio", 1.0),
        *(row(f"GPU-hours lost to preemption: {way}", each, "GPU h") for way, each in gpu_h.items()),
        *(row(f"jobs stopped: {way}", each, "jobs") for way, each in stopped.items()),
    ]


def _stream(size: Size, seed: int, way: str) -> Crowd:
    """Jobs of ten priorities come faster than they end, and save their work now and then."""
    nodes = tuple(a_node(i) for i in range(max(size.nodes // 10, 4)))
    crowd = Crowd(Cluster(nodes, ("rack", "node")), "priority", seed)
    with _choosing(way):
        for _ in range(size.stream_turns):
            crowd.now += STREAM_TURN_MS
            saved = [
                Progress(attempt.job.id, attempt.number, durable_step=attempt.durable_step + 1)
                for attempt in list(crowd.state.attempts_present())
                if attempt.phase is Phase.RUNNING and crowd.rng.random() < 0.1
            ]
            crowd.settle(crowd.take([*saved, *crowd.ends(2), *(JobSubmitted(crowd.job(10)) for _ in range(6))]))
    return crowd


@contextmanager
def _choosing(way: str) -> Iterator[None]:
    """Has victims chosen in one way or the other."""
    original = VictimSearch.loss
    if way == "priority order":
        VictimSearch.loss = _by_priority  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        VictimSearch.loss = original  # type: ignore[method-assign]


def _by_priority(search: VictimSearch, attempt: AttemptRecord) -> int:
    """The lowest priority first, of those the newest: as if nothing else counted."""
    return attempt.job.priority * 10**9 + (search.context.now - max(attempt.started_ms, 0)) // 1000
