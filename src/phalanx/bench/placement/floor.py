"""A floor: a cluster without an engine, on which gangs come and go at random."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from phalanx.bench.clock import timed_us
from phalanx.bench.placement.fleet import (
    CPUS_MILLI,
    GPU_TYPES,
    GPUS,
    NODES_PER_RACK,
    Jobs,
    drained,
    fleet,
    gang_of,
    take,
)
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import Health
from phalanx.cluster.topology import Topology as Tree
from phalanx.placement.fit import Fit
from phalanx.placement.gang import GangTrial
from phalanx.placement.pack import Packing
from phalanx.placement.place import refusal
from phalanx.workload.gang import Task, Topology
from phalanx.workload.job import Job


class Floor:
    """Gangs are seated, and others end at random whenever more than `load` of the GPUs are in use."""

    def __init__(self, nodes: int, load: float) -> None:
        self.rng = Random(nodes)
        cluster = fleet(nodes, self.rng)
        self.capacity = Capacity(Tree(cluster))
        for name in drained(cluster, self.rng):
            self.capacity.set_health(self.capacity.topology.number[name], Health.DRAINING)
        self.fit = Fit(self.capacity)
        self.packing = Packing()
        self.jobs = iter(Jobs.of(self.rng))
        self.gpus_wanted = load * cluster.gpus
        self.gpus_used = 0
        self.seated: list[GangTrial] = []
        while self.gpus_used < self.gpus_wanted:
            self._try_next()

    def place(self, count: int) -> list[float]:
        """Microseconds for each of `count` gangs placed, whatever was refused between them."""
        times_us: list[float] = []
        while len(times_us) < count:
            while self.gpus_used > self.gpus_wanted:
                self._end_one()
            time_us = self._try_next()
            if time_us is not None:
                times_us.append(time_us)
        return times_us

    def place_large(self, nodes: int) -> float:
        """Milliseconds for a gang of many whole nodes of any type."""
        trial = self._trial(Job("large", gang_of(Task(GPUS, cpus_milli=64_000, memory_mb=512_000), nodes)))
        time_us, fits = timed_us(trial.seat)
        trial.undo()
        if not fits:
            raise RuntimeError(f"a gang of {nodes} nodes does not fit a fleet of {len(self.capacity.topology.nodes)}")
        return time_us / 1_000

    def refuse(self, shapes: range) -> tuple[list[float], list[float]]:
        """Milliseconds to refuse gangs, with counts: at the first sight of a shape, and when it is known.

        Other numbers are other shapes. A gang that does fit stays, so that the next of its kind does not.
        """
        first: list[float] = []
        again: list[float] = []
        for job in self._misfits(shapes):
            at_first, at_second = self._refuse(job), self._refuse(job)
            if at_first is not None and at_second is not None:
                first.append(at_first)
                again.append(at_second)
        return first, again

    def _misfits(self, shapes: range) -> Iterator[Job]:
        """Gangs that want all of a type, a whole rack, and more CPUs than any node has, each in a shape of its own."""
        whole = len(self.capacity.topology.nodes) // len(GPU_TYPES)
        for i in shapes:
            gpu_type = (GPU_TYPES[i % len(GPU_TYPES)][0],)
            task = Task(GPUS, gpu_type, memory_mb=100_000 + i)
            yield Job("type", gang_of(task, whole))
            yield Job("rack", gang_of(task, NODES_PER_RACK, Topology("rack")))
            yield Job("cpus", gang_of(Task(1, gpu_type, cpus_milli=CPUS_MILLI + 1 + i), 1))

    def _refuse(self, job: Job) -> float | None:
        trial = self._trial(job)
        time_us, answer = timed_us(lambda: trial.seat() or refusal(self.fit, job))
        return None if answer is True else time_us / 1_000

    def _trial(self, job: Job) -> GangTrial:
        return GangTrial(self.fit, self.packing, job)

    def _try_next(self) -> float | None:
        """Microseconds to seat the next gang, which stays; None if it does not fit."""
        trial = self._trial(next(self.jobs))
        time_us, fits = timed_us(trial.seat)
        if not fits:
            return None
        self.seated.append(trial)
        self.gpus_used += trial.job.gang.gpus_min
        return time_us

    def _end_one(self) -> None:
        trial = take(self.seated, self.rng)
        self.gpus_used -= trial.job.gang.gpus_min
        trial.undo()
