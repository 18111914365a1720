"""A sample: the figures of the cluster, its queues, nodes and jobs at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from phalanx.cluster.queues import ancestors
from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.server.figures.loads import Loads
from phalanx.server.figures.states import BUSY, HELD, IDLE, STATES, state_of
from phalanx.server.view.devices import devices_on

CLUSTER_NAMES = ("gpus_total", *(f"gpus_{state}" for state in STATES), "jobs_pending", "jobs_running")
QUEUE_NAMES = ("gpus_used", "gpus_deserved", "jobs_pending", "jobs_running")
NODE_NAMES = ("gpus_allocated", "utilization", "memory_mb")
JOB_NAMES = ("gpus", "utilization", "memory_mb", "progress")

QUEUES_MAX = 200
"""Queues of which series are kept: those with the most GPUs."""

Values = dict[str, float]
PENDING = (JobState.WAITING, JobState.SUSPENDED)


def sample(state: State, loads: Loads) -> Iterator[tuple[str, Values]]:
    """The figures of every scope but jobs."""
    idle_jobs = loads.idle_jobs()
    promised = promised_devices(state)
    counted = [0] * len(STATES)
    for number, node in enumerate(state.topology.nodes):
        health = state.capacity.health[number].value
        states = [state_of(health, device, idle_jobs) for device in devices_on(state, number)]
        free = sum(1 for index, each in enumerate(states) if each == IDLE and promised.get(number, 0) >> index & 1)
        for each in states:
            counted[each] += 1
        counted[IDLE] -= free
        counted[STATES.index("reserved")] += free
        yield f"node:{node.name}", _of_node(state, number, states.count(HELD) + states.count(BUSY), loads)
    queues = _counted_queues(state)
    whole = queues.pop("", Counter())
    gpus = dict(zip((f"gpus_{name}" for name in STATES), map(float, counted), strict=True))
    jobs = {"jobs_pending": float(whole["jobs_pending"]), "jobs_running": float(whole["jobs_running"])}
    yield "cluster", {"gpus_total": float(sum(counted)), **gpus, **jobs}
    yield from ((f"queue:{name}", _of_queue(state, name, counts)) for name, counts in _largest(queues))


def sample_jobs(state: State, loads: Loads) -> Iterator[tuple[str, Values]]:
    """The figures of every job that runs, those with the most GPUs first."""
    running = sorted(state.attempts_present(), key=lambda attempt: (-attempt.gpus, attempt.created_ms))
    for attempt in running:
        if attempt.started_ms >= 0:
            said = loads.said.get(attempt.job.id)
            yield f"job:{attempt.job.id}", {"gpus": float(attempt.gpus), **(said.take() if said is not None else {})}


def promised_devices(state: State) -> dict[int, int]:
    """Devices that are reserved for pending jobs, by node, as a set of bits."""
    found: dict[int, int] = {}
    for reservation in state.reservations:
        for slot in reservation.placement.slots:
            number = state.topology.number.get(slot.node)
            if number is not None:
                found[number] = found.get(number, 0) | sum(1 << device for device in slot.devices)
    return found


def _of_node(state: State, number: int, allocated: int, loads: Loads) -> Values:
    values = {"gpus_allocated": float(allocated)}
    busy, measured, memory_mb = 0.0, 0, 0.0
    for attempt in state.on_node.get(number, {}).values():
        said = loads.said.get(attempt.job.id)
        if said is not None and said.measures and attempt.gpus:
            here = sum(booking.devices.bit_count() for booking in attempt.bookings if booking.node == number)
            busy, measured = busy + here * said.gpu_busy, measured + here
            memory_mb += 1024 * said.memory_gb * here / attempt.gpus
    if measured:
        values |= {"utilization": 100 * busy / measured, "memory_mb": memory_mb}
    return values


def _counted_queues(state: State) -> dict[str, Counter[str]]:
    """What waits and runs in each queue and those inside it; the whole is the empty name."""
    own: dict[str, Counter[str]] = {}
    for record in state.jobs.values():
        if record.final is None:
            counts = own.setdefault(record.job.queue, Counter())
            if record.state in PENDING:
                counts["jobs_pending"] += 1
            else:
                counts["jobs_running"] += 1
                counts["gpus_used"] += record.gpus
    found: dict[str, Counter[str]] = {queue.path: Counter() for queue in state.cluster.queues}
    for name, counts in own.items():
        for path in ancestors(name):
            found.setdefault(path, Counter()).update(counts)
    return found


def _largest(queues: dict[str, Counter[str]]) -> list[tuple[str, Counter[str]]]:
    return sorted(queues.items(), key=lambda each: (-each[1]["gpus_used"], -each[1]["jobs_pending"], each[0]))[
        :QUEUES_MAX
    ]


def _of_queue(state: State, name: str, counts: Counter[str]) -> Values:
    values = {key: float(counts[key]) for key in ("gpus_used", "jobs_pending", "jobs_running")}
    account = state.quotas.accounts.get(name)
    deserved = account.queue.deserved.gpus_permille if account is not None else None
    return values if deserved is None else {**values, "gpus_deserved": deserved / 1000}
