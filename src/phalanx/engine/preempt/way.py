"""Ways: how attempts are preempted for a head, and what is known then."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from phalanx.engine.preempt.charge import Rank
from phalanx.engine.preempt.slack import Slack
from phalanx.engine.preempt.upper_bound import UpperBound
from phalanx.engine.state.records import AttemptRecord, PreemptionGroup
from phalanx.placement.gang import GangTrial
from phalanx.placement.placement import Slot
from phalanx.policy.policy import Key


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of a preemption: the attempts that are terminating anyway, and those that must not be touched.

    `fresh` is where something grew since the head was last refused; None, and every node is looked at, if it never was.
    `upper_bound` is that of the head; `giving_way` are the groups that give way to a preemption group, once known;
    `shrinking` are the members that elastic attempts give up already; `is_any_behind` says of a key whether any attempt
    behind it in the running order might be preempted.
    """

    leaving: Mapping[str, AttemptRecord]
    untouchable: Container[str]
    fresh: int | None
    now: int
    upper_bound: UpperBound
    giving_way: dict[PreemptionGroup, list[PreemptionGroup]]
    shrinking: Mapping[str, tuple[Slot, ...]]
    is_any_behind: Callable[[Key], bool]


class Way(Protocol):
    """How attempts are preempted for a head."""

    def groups(self) -> Iterable[PreemptionGroup]:
        """All groups whose attempts may be preempted, and maybe more."""

    def group_goes(self, attempt: AttemptRecord) -> bool:
        """Whether attempts of this one's queue and priority may be preempted at all."""

    def goes(self, attempt: AttemptRecord) -> bool:
        """Whether this one may."""

    def may_begin(self, groups: Iterable[Mapping[str, AttemptRecord]]) -> bool:
        """Whether any attempt of the groups may be the first to go, with all others there."""

    def rank(self, attempt: AttemptRecord) -> Rank:
        """What attempts of this one's queue and priority are charged by, before what they lose."""

    def together(self, candidates: list[AttemptRecord]) -> list[AttemptRecord]:
        """As many of the candidates, the first first, as may be preempted together."""

    def seat(self, victims: list[AttemptRecord]) -> GangTrial | None:
        """Places the head with the victims out of the way; None if it does not fit then, or they may not all go."""

    def slack_of(self, victims: list[AttemptRecord]) -> Callable[[list[AttemptRecord]], Slack] | None:
        """What tells of some of the victims which can be dropped, if a head that fits with fewer fits with more."""
