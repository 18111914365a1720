"""All attempts on Ray. The driver is their shepherd; what another would lose with it, the next driver goes on with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from phalanx.backends.local.attempt_files import AttemptState
from phalanx.backends.local.supervised import SupervisedAttempt
from phalanx.backends.local.supervisors import Supervisors
from phalanx.backends.local.wire import Message, Wire
from phalanx.backends.ray.guests import Guests
from phalanx.backends.ray.line import DriverLine, RayAttempt
from phalanx.backends.ray.told import Told
from phalanx.backends.ray.yard import RayYard
from phalanx.cluster.cluster import Health
from phalanx.errors import PhalanxError
from phalanx.placement.placement import Slot
from phalanx.protocol.action import Repartition
from phalanx.protocol.event import DevicesAssigned, Event, ForeignUse, NodeHealthChanged
from phalanx.workload.job import Job

LOOK_S = 5.0
"""How often it is looked whether the cluster has other nodes."""

TRIES_MAX = 5
"""How many drivers in a row may go on with an attempt and die before it is given up."""


class RaySupervisors(Supervisors):
    """Works in one thread. What happens is handed to `emit`."""

    def __init__(self, yard: RayYard, jobs: Callable[[str], Job], emit: Callable[[list[Event]], None]) -> None:
        super().__init__(yard, jobs, emit)
        self.guests = Guests(yard.cluster, yard.address, lambda: emit([]))
        self._cluster = yard.cluster
        self._message: Message = {}
        self._driver = DriverLine(yard.driver, yard.address, yard.site)
        self._told = Told(yard.backend / "ray-nodes.json")
        self._driver.replace = self._replace_driver
        self._noted = yard.cluster()
        self._attend_driver()

    def let_go(self) -> None:
        """Closes all lines; the driver goes on."""
        super().let_go()
        self._driver.let_go()

    def _supervised(self, job: str, attempt: int) -> SupervisedAttempt:
        return RayAttempt(job, attempt, self._yard.folder(job, attempt), self._driver)

    def _bury(self, attempt_process: SupervisedAttempt, state: AttemptState | None) -> AttemptState | None:
        assert isinstance(attempt_process, RayAttempt)
        attempt_process.tries += 1
        if attempt_process.folder.order() is not None and attempt_process.tries <= TRIES_MAX:
            return None
        return super()._bury(attempt_process, state)

    def _cut(self, action: Repartition) -> None:
        raise PhalanxError(f"device {action.device} of {action.node}: Ray cuts no GPU by MIG")

    def _hear_first(self, attempt_process: SupervisedAttempt, message: Message) -> None:
        assert isinstance(attempt_process, RayAttempt)
        attempt_process.tries = 0
        self._assign(attempt_process, message)

    def _hear_last(self, attempt_process: SupervisedAttempt, message: Message) -> None:
        self._assign(attempt_process, message)

    def _assign(self, attempt_process: SupervisedAttempt, message: Message) -> None:
        """Tells which devices Ray gave. While an attempt is resized that counts only once this is done."""
        if message.get("slots") and message["ending"] is None:
            slots = tuple(Slot(rank, role, node, tuple(devices)) for rank, role, node, devices in message["slots"])
            self._emit(DevicesAssigned(attempt_process.job, attempt_process.attempt, slots))

    def _attend_driver(self) -> None:
        wire = self._driver.open()
        self.watch(wire.fileno(), partial(self._hear_driver, wire))

    def _replace_driver(self) -> None:
        """Another driver follows one that is gone. An attempt may be the first to notice, or the line itself."""
        if self._driver.wire is not None:
            self._selector.unregister(self._driver.wire)
        self._driver.let_go()
        self._attend_driver()

    def _hear_driver(self, wire: Wire) -> None:
        if wire is not self._driver.wire:
            # It was replaced after this was due.
            return
        messages = wire.receive()
        for message in messages or ():
            self._message = message
            self._note(message)
        if messages is None:
            self._replace_driver()

    def attend(self) -> None:
        """Waits for the next thing and sees to it; nodes that the cluster has got meanwhile are looked at as well."""
        super().attend()
        if self._message and self._cluster() is not self._noted:
            self._note(self._message)

    def _patience_s(self) -> float | None:
        patience_s = super()._patience_s()
        return LOOK_S if patience_s is None else min(patience_s, LOOK_S)

    def _note(self, message: Message) -> None:
        self._noted = self._cluster()
        self._note_nodes(message)
        self._note_foreign(message.get("foreign", {}))
        self.guests.look(message.get("nodes", ()))

    def _note_foreign(self, found: dict[str, list[int]]) -> None:
        """Tells what other work of Ray holds."""
        for node, used in found.items():
            if node in self._names() and self._told.is_new_use(node, used):
                self._emit(ForeignUse(node, gpus=used[0], cpus_milli=used[1]))

    def _names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self._noted.nodes)

    def _note_nodes(self, message: Message) -> None:
        there = message.get("nodes", ())
        for node in self._names():
            if "unreachable" in message:
                told = (Health.SUSPECT, message["unreachable"])
            elif node in there:
                told = (Health.HEALTHY, "")
            else:
                told = (Health.FAILED, "Ray has no such node, or it is dead there")
            if self._told.is_new_health(node, told[0]):
                self._emit(NodeHealthChanged(node, *told))
