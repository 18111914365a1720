"""Plans: what to do next, and why the rest waits. A journaled Plan is a Decision."""

from __future__ import annotations

import msgspec

from phalanx.placement.placement import Placement
from phalanx.protocol.action import Action
from phalanx.protocol.cells_steps import CellStep
from phalanx.protocol.reason import Reason


class Claim(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exact device shares for a new attempt, from the moment it is planned.

    A claim that `waits` lies on devices that `victims`, and terminating attempts, still hold; no other job gets them.
    """

    job: str
    attempt: int
    placement: Placement
    waits: bool = False
    victims: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a job, and every pending job of the same shape in the same queue, does not run."""

    job: str
    reason: Reason


RESERVATIONS_MAX = 32
"""Jobs for which devices are reserved at most, where every pending job gets some: a bound on work."""


class Reservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The devices that a job will have from a moment on, by what is known of the attempts that hold them now.

    Where holders run longer than they said, `at_ms` is when they are expected to have left after all, and
    `earliest_ms` when the job could start if they left now.
    """

    job: str
    at_ms: int
    placement: Placement
    earliest_ms: int | None = None

    @property
    def could_start_ms(self) -> int:
        """The earliest moment at which the job could start: a job behind it that runs on then may delay it."""
        return self.at_ms if self.earliest_ms is None else self.earliest_ms


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, tag="Decision"):
    """The difference between what is and what should be.

    `verdicts` are those that changed. `head` is the job behind which everything waits, where the policy does not let
    jobs pass. `exhaustive` says that every class of pending jobs was looked at. `withdrawn` are attempts that had no
    more than a claim, which goes to a job before them. `reservations` are those there are from now on; None leaves
    them as they were. `cells` are the steps that lead to these claims among the cells of virtual clusters.
    """

    claims: tuple[Claim, ...] = ()
    actions: tuple[Action, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    head: str = ""
    exhaustive: bool = True
    withdrawn: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] | None = None
    cells: tuple[CellStep, ...] = ()

    @property
    def starts(self) -> tuple[str, ...]:
        """Jobs that get their devices by this plan."""
        return tuple(claim.job for claim in self.claims)

    def news(self, head: str) -> bool:
        """Whether the plan changes anything, given the head that is known already."""
        return bool(
            self.claims
            or self.actions
            or self.verdicts
            or self.withdrawn
            or self.reservations is not None
            or self.head != head
        )
