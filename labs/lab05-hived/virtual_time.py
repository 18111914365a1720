"""Virtual time: a HiveD configuration is the cluster, OpenPAI's jobs are submitted to it, and phalanx decides.

This is the scheduler of `phalanx simulate` and of the server; the lab only looks on and takes notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.fold.check_cells import check_job
from phalanx.engine.state.records import JobState
from phalanx.protocol.action import Start, Stop
from phalanx.protocol.plan import Plan
from phalanx.simulate.run import Run, submissions
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.array import members
from phalanx.workload.formats.openpai import native_jobs, read_openpai
from phalanx.workload.job import Checkpointing, Job

HERE = Path(__file__).parent
MINUTES = re.compile(r"--minutes (\d+)")
MINUTE_MS = 60_000


@dataclass(frozen=True)
class Event:
    """Something that happened to a task: starts, ends, preempted or refused."""

    minute: int
    what: str
    task: str
    node: str = ""
    why: str = ""


@dataclass
class Lab:
    """A cluster with one configuration, the jobs submitted to it, and what happened."""

    config: str
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = read_cluster((HERE / self.config).read_text(), self.config)
        self._arrivals: list[tuple[int, Job]] = []
        self._works: dict[str, Work] = {}

    def submit(self, minute: int, file: str, name: str = "") -> None:
        """A job file is submitted, under another name if one is given."""
        text = (HERE / "jobs" / file).read_text()
        if name:
            text = re.sub(r"^name: .*$", f"name: {name}", text, flags=re.MULTILINE)
        for job in native_jobs(read_openpai(text, file)):
            script = MINUTES.search(" ".join(job.execution.command))
            # OpenPAI's tasks save nothing when they are told to go: whoever is preempted starts anew.
            job = replace(job, id=job.name, grace_ms=0, checkpoint=Checkpointing(cost_ms=1))
            for member in members(job):
                self._works[member.id] = Work(MINUTE_MS * int(script.group(1) if script else 1), job=member)
                self._arrivals.append((MINUTE_MS * minute, member))

    def run(self) -> list[Event]:
        """Everything that happens, until nothing is left to happen."""
        backend = VirtualBackend(self._works, NO_COSTS)
        empty = Run.of(self.cluster, "fifo:skip=true", backend, ())
        run = Run.of(self.cluster, "fifo:skip=true", backend, submissions(self._accepted(empty)))
        while (plan := run.step()) is not None:
            self._note(run, plan)
        for job, record in run.state.jobs.items():
            if record.final is JobState.SUCCEEDED:
                self._happened(record.ended_ms or 0, "ends", job, record.job)
        return self.events

    def at(self, task: str, what: str) -> list[int]:
        """The minutes at which something happened to a task."""
        return [event.minute for event in self.events if (event.task, event.what) == (task, what)]

    def nodes(self, task: str) -> list[str]:
        """The nodes a task has started on, one after another."""
        return [event.node for event in self.events if (event.task, event.what) == (task, "starts")]

    def _accepted(self, run: Run) -> list[tuple[int, Job]]:
        """What can ever run; the rest is refused when it is submitted, with the arithmetic."""
        accepted: list[tuple[int, Job]] = []
        for at_ms, job in self._arrivals:
            try:
                assert run.state.cells is not None
                check_job(run.state.cells, job)
            except ValueError as error:
                self.events.append(Event(at_ms // MINUTE_MS, "refused", job.id, why=str(error)))
            else:
                accepted.append((at_ms, job))
        return accepted

    def _note(self, run: Run, plan: Plan) -> None:
        for action in plan.actions:
            job = run.state.jobs[action.id.job].job
            if isinstance(action, Start):
                for slot in action.placement.slots:
                    self._happened(run.state.now, "starts", job.id, job, slot.rank, slot.node)
            elif isinstance(action, Stop):
                self._happened(run.state.now, action.reason, job.id, job)

    def _happened(self, at_ms: int, what: str, name: str, job: Job, rank: int = 0, node: str = "") -> None:
        """Tasks are named as OpenPAI names them: job, role, number."""
        number = name.rpartition(".")[2] if job.array is not None else rank
        task = f"{job.name}-{job.gang.roles[0].name}-{number}"
        self.events.append(Event(at_ms // MINUTE_MS, what, task, node))
