"""A State with its journal, made of what another scheduler did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from phalanx.engine.state.journal import Journal
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import Done, Event
from phalanx.protocol.plan import Claim, Plan


@dataclass(slots=True)
class Taken:
    """A State with its journal, and what of the other scheduler's could not be told in it. `reasons` are what that
    says of its pending jobs.
    """

    state: State = field(default_factory=State)
    journal: Journal = field(default_factory=Journal)
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def tell(self, body: Event | Plan, at_ms: int) -> bool:
        """Folds something in; what cannot be is counted as left out."""
        try:
            record(self.state, self.journal, body, at_ms)
        except (ValueError, KeyError, AssertionError, IndexError) as error:
            self.left_out[f"{type(body).__name__}: {str(error)[:100]}"] += 1
            return False
        return True

    def start(self, job: str, slots: tuple[Slot, ...], at_ms: int) -> bool:
        """Has a job run from then on where the other scheduler placed it."""
        start = Start(ActionId(1, job, 1, 0), Placement(slots))
        if not self.tell(Plan(claims=(Claim(job, 1, start.placement),), actions=(start,)), at_ms):
            return False
        return self.tell(Done(start.id), at_ms)

    def lines(self) -> bytes:
        """The journal as it is written to a file."""
        return b"".join(line.rstrip(b"\n") + b"\n" for line in self.journal.lines())
