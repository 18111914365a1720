"""The simulator's backend as a subject: it declares most of what has to do with processes as lacking."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from programs import Program

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.live import Adopted
from phalanx.backends.local.host.processes import Process
from phalanx.engine.backend import Backend
from phalanx.protocol.action import Action, Start
from phalanx.protocol.event import Event, Failed
from phalanx.simulate.trace import Ending
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work
from phalanx.workload.job import Job

WORKS = {
    Program.FOREVER: Work(None),
    Program.SHORT: Work(200),
    Program.SUCCEED: Work(0),
    Program.FAIL: Work(0, Ending.FAILED),
}
HAS = (Capability.RESIZE, Capability.SUSPEND)


class VirtualSubject:
    """Jobs in virtual time."""

    programs = frozenset((*WORKS, Program.NOT_THERE))
    offer = Offer(
        "virtual",
        "Jobs in virtual time.",
        {capability: "there are no processes" for capability in Capability if capability not in HAS},
    )

    def __init__(self) -> None:
        self._now = 1_000_000
        self._works: dict[str, Work] = {}
        self._unbeginnable: list[str] = []
        self._sabotaged: list[tuple[str, int]] = []
        self._costs = replace(NO_COSTS, start_ms=50, stop_ms=20, resize_ms=20)
        self.backend = VirtualBackend(self._works, self._costs, fault=self._fault)

    def _fault(self, action: Action) -> Event | None:
        if isinstance(action, Start):
            if action.id.job in self._unbeginnable:
                return Failed(action.id, "there is no such program", retryable=False)
            for job, rank in self._sabotaged:
                if (job, 1) == (action.id.job, action.id.attempt):
                    return Failed(action.id, f"task {rank} did not start", node=action.placement.slots[rank].node)
        return None

    def job(self, job: Job, program: Program) -> Job:
        if program is Program.NOT_THERE:
            self._unbeginnable.append(job.id)
        else:
            self._works[job.id] = WORKS[program]
        return job

    def open(self, apart: bool) -> Backend:
        assert not apart, "what is in virtual time has no process to be killed"
        return self.backend

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        raise NotImplementedError

    def now(self) -> int:
        return self._now

    def jump(self, by_ms: int) -> None:
        self._now += by_ms

    def wait(self, next_ms: int | None) -> bool:
        if next_ms is None:
            return False
        self._now = max(self._now, next_ms)
        return True

    def living(self, job: str) -> int:
        life = self.backend.lives.get(job)
        return len(life.placement.slots) if life is not None and life.placement is not None else 0

    def processes(self, job: str) -> list[Process]:
        raise NotImplementedError

    def keeper(self, job: str) -> int:
        raise NotImplementedError

    def sabotage(self, job: str, rank: int) -> None:
        self._sabotaged.append((job, rank))

    def printed(self, job: str, rank: int) -> int:
        raise NotImplementedError

    def close(self) -> None:
        """There is nothing to clear away."""
