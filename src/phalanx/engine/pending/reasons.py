"""Pending reasons: why classes stay pending, as a decision has found it out."""

from __future__ import annotations

from phalanx.engine.pending.queue import PendingClass
from phalanx.engine.plan.builder import PlanBuilder
from phalanx.engine.quota.shortfall import Shortfall
from phalanx.engine.state.records import JobRecord
from phalanx.engine.state.state import State
from phalanx.placement.place import lack
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import LACK_REASON, Reason

LASTING = (Reason.NEVER_FITS, Reason.QUOTA, Reason.BUDGET)
"""Reasons for which no other job has to wait."""


class Reasons:
    """Those of one decision, and of classes that have none yet."""

    def __init__(self, state: State, builder: PlanBuilder) -> None:
        self.state = state
        self.builder = builder
        self._told: dict[PendingClass, Verdict] = {}
        self._lacks: dict[int, Reason] = {}

    def of(self, pending: PendingClass) -> Reason:
        """The last that is known of a class."""
        told = self._told.get(pending)
        return told.reason if told is not None else pending.waiting.verdict

    def is_told(self, pending: PendingClass) -> bool:
        """Whether a class was told anything in this decision."""
        return pending in self._told

    def tell(self, pending: PendingClass, reason: Reason) -> None:
        """Sets the reason of a class."""
        self._told.pop(pending, None)
        self._told[pending] = Verdict(pending.job, reason)

    def placed(self, pending: PendingClass) -> None:
        """The first job of a class is placed; one that is held back stays pending for its reason."""
        if pending.held in (None, pending.at):
            pending.held = None
            self._told.pop(pending, None)

    def helped(self, record: JobRecord) -> None:
        """A job is placed that may have been told the reason of its class: that is to be found out anew."""
        self._told = {
            pending: told for pending, told in self._told.items() if self.state.jobs[told.job].shape != record.shape
        }

    def news(self) -> tuple[Verdict, ...]:
        """The reasons that have changed."""
        return tuple(told for pending, told in self._told.items() if pending.waiting.verdict is not told.reason)

    def find(self, pending: PendingClass) -> Reason:
        """Why a class is pending that was not tried, as others of its request were."""
        record = self.state.jobs[pending.job]
        short = self.state.shortfall(record)
        if short is not None and self.builder.quota_reservations.in_the_way_of(record, short):
            return Reason.RESERVED
        if short is not None and (reason := reason_of(self.state, record, short)) is not Reason.GPUS:
            return reason
        found = self._lacks.get(pending.bit)
        if found is None:
            found = self._lacks[pending.bit] = LACK_REASON[lack(self.state.fit, record.asked)]
        return found

    def lacks_gpus(self, pending: PendingClass) -> bool:
        """Whether a class waits for devices: it may have them, or has no quota while there are too few."""
        record = self.state.jobs[pending.job]
        short = self.state.shortfall(record)
        waits = short is None or reason_of(self.state, record, short) is Reason.GPUS
        return waits and self.of(pending) is not Reason.NEVER_FITS


def reason_of(state: State, record: JobRecord, short: Shortfall) -> Reason:
    """Why a job is pending that may not have what it asks for; GPUs, if there are not so many left to be lent."""
    if short.by_budget:
        return Reason.BUDGET
    full = not short.by_limit and state.capacity.free_total < record.gpus_min
    return Reason.GPUS if full else Reason.QUOTA
