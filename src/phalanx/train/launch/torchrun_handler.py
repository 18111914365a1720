"""`torchrun --rdzv-backend=phalanx`: torchrun's agents meet as the scheduler plans, and wait for no time-out.

torch finds `creator` by the entry point `torchrun.handlers`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from phalanx.errors import PhalanxError
from phalanx.train.launch.addresses import local_address
from phalanx.train.launch.options import endpoint_of
from phalanx.train.launch.plan import GangFile, Plan, Seat

POLL_S = 0.05
CONNECT_S = 5.0
"""How long one attempt to reach the store may take; the plan is looked at again between attempts."""

JOIN_TIMEOUT_S = 600.0


class PlannedRendezvous(RendezvousHandler):
    """Agents of one plan meet in rounds: each restart of the workers is a round of its own."""

    def __init__(self, run_id: str, endpoint: str, seat: Seat, timeout_s: float) -> None:
        self._run_id, self._endpoint, self._task = run_id, endpoint_of(endpoint), seat.task
        self._gang = GangFile(seat)
        self._timeout_s = timeout_s
        self._store: tuple[int, TCPStore] | None = None
        """With the task whose agent holds it."""
        self._met: Plan | None = None
        self._round = 0
        self._is_closed = False

    def get_backend(self) -> str:
        return "phalanx"

    def get_run_id(self) -> str:
        return self._run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Waits for the agents of the newest plan, and for no others."""
        until = time.monotonic() + self._timeout_s
        round_of: dict[str, int] = {} if self._met is None else {self._met.name: self._round + 1}
        while time.monotonic() < until:
            plan = self._planned()
            number = round_of.setdefault(plan.name, 0)
            if self._arrive(plan, number) and self._is_whole(plan, number):
                return self._begin(plan, number)
            time.sleep(POLL_S)
        raise RendezvousTimeoutError(
            f"the agents of tasks {', '.join(map(str, self._planned().tasks))} did not meet at "
            f"{self._endpoint[0]}:{self._endpoint[1]} in {self._timeout_s:g} s"
        )

    def num_nodes_waiting(self) -> int:
        """How many agents the workers are to be restarted for: those of a newer plan, or of the next round."""
        plan = self._gang.plan()
        if plan is None or self._met is None or self._task not in plan.tasks:
            # An agent that is to leave gets a signal.
            return 0
        if plan.name == self._met.name:
            return self._arrived(plan, self._round + 1, [task for task in plan.tasks if task != self._task])
        new = [task for task, since in _seats(plan) if (task, since) not in _seats(self._met)]
        if self._store is not None and self._store[0] != plan.tasks[0]:
            # Where new agents wait is not there any more.
            return max(len(new), 1)
        come = self._arrived(plan, 0, new)
        return max(come, 1) if come == len(new) else 0

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def shutdown(self) -> bool:
        self._is_closed = True
        return True

    def _planned(self) -> Plan:
        plan = self._gang.plan()
        if plan is None or self._task not in plan.tasks:
            raise RendezvousClosedError(f"the scheduler plans without task {self._task}")
        return plan

    def _arrive(self, plan: Plan, number: int) -> bool:
        """Says at the store that this agent is there; False while there is no store."""
        try:
            if self._store is None or self._store[0] != plan.tasks[0]:
                self._store = (plan.tasks[0], self._connected(plan.tasks[0] == self._task))
            self._store[1].set(_mark(plan, number, self._task), "")
        except RuntimeError:
            self._store = None
            return False
        return True

    def _connected(self, holds: bool) -> TCPStore:
        host, port = self._endpoint
        return TCPStore(host, port, is_master=holds, timeout=timedelta(seconds=CONNECT_S), wait_for_workers=False)

    def _is_whole(self, plan: Plan, number: int) -> bool:
        return self._arrived(plan, number, plan.tasks) == len(plan.tasks)

    def _arrived(self, plan: Plan, number: int, tasks: Sequence[int]) -> int:
        if self._store is None:
            return 0
        try:
            return sum(self._store[1].check([_mark(plan, number, task)]) for task in tasks)
        except RuntimeError:
            # Its holder is gone; the scheduler will say what comes next.
            return 0

    def _begin(self, plan: Plan, number: int) -> RendezvousInfo:
        assert self._store is not None
        self._met, self._round = plan, number
        # Workers wait for one another longer than agents for the store.
        self._store[1].set_timeout(timedelta(seconds=self._timeout_s))
        store = PrefixStore(f"{plan.name}/{number}", self._store[1])
        rank = plan.tasks.index(self._task)
        info = RendezvousStoreInfo.build(rank, store, local_address(self._endpoint))
        return RendezvousInfo(store, rank, len(plan.tasks), info)


def _seats(plan: Plan) -> list[tuple[int, int]]:
    return list(zip(plan.tasks, plan.since, strict=True))


def _mark(plan: Plan, number: int, task: int) -> str:
    return f"{plan.name}/{number}/arrived/{task}"


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """A handler for an agent in a task of the scheduler."""
    seat = Seat.of(os.environ)
    if seat is None:
        raise PhalanxError(
            "--rdzv-backend=phalanx: this is no task of a phalanx job (PHALANX_GANG_FILE and PHALANX_RANK are not "
            "set); submit it with `phalanx submit`, or take --rdzv-backend=c10d"
        )
    endpoint = parameters.endpoint or f"{os.environ['PET_MASTER_ADDR']}:{os.environ['PET_MASTER_PORT']}"
    timeout_s = float(parameters.get("join_timeout", JOIN_TIMEOUT_S))
    return PlannedRendezvous(parameters.run_id, endpoint, seat, timeout_s)


def creator() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What the entry point gives torch."""
    return create
