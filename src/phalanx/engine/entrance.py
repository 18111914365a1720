"""The entrance to the line: who of those that were refused before may try again, by what nodes offer alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.engine.draft import Draft
from phalanx.engine.heads import Heads
from phalanx.engine.offers import Offers
from phalanx.engine.reach import measure
from phalanx.engine.records import Reach, WaitingClass
from phalanx.engine.stake import Site, Stake
from phalanx.engine.state import State
from phalanx.protocol.reason import Reason

UNBOUNDED = float("inf")


class Entrance:
    """Holds where a refusal lasts until something grows and no queue has a quota.

    Thousands of jobs are of hundreds of kinds, and these have few stakes: what one is offered is found out once.
    """

    def __init__(self, state: State, draft: Draft, offers: Offers, classes: Sequence[WaitingClass]) -> None:
        self.state = state
        self.draft = draft
        self._offers = offers
        self._classes = classes
        self._makes_way = state.policy.preempts
        self._offered: dict[Stake, bool] = {}
        self._fresh, self._here = offers.fresh, dict[Site, int]()

    def sort(self, classes: Iterable[int], everybody: bool) -> tuple[list[int], list[int]]:
        """Who may come in, and who would be refused again.

        Where nobody makes way for others, nobody comes in who lacked GPUs and needs more than there will be, unless
        `everybody` is to be looked at.
        """
        let_in: list[int] = []
        kept_out: list[int] = []
        clean_seq, offered, every = self.state.clean_seq, self._offered, self._classes
        most = UNBOUNDED if self._makes_way or everybody else self.draft.free_soon
        offered.clear()
        for i in classes:
            waiting = every[i]
            if waiting.born <= clean_seq and waiting.verdict is not Reason.UNDECIDED:
                stake, _, gpus, _, _ = waiting.reach or self._measure(waiting)
                enough = offered.get(stake)
                if enough is None:
                    enough = offered[stake] = self._is_offered(stake, waiting)
                if not enough or (gpus > most and waiting.verdict is Reason.GPUS):
                    kept_out.append(i)
                    continue
            let_in.append(i)
        return let_in, kept_out

    @property
    def _tells(self) -> bool:
        """Whether, of those who were refused before, nobody is tried to whom nodes do not offer enough."""
        return self._makes_way and self._offers.last and self._offers.few_are_fresh

    def thin_out(self, heads: Heads) -> list[int]:
        """Takes those out of the line to whom nodes offer too little now that somebody got devices; whom."""
        if not self._tells:
            return []
        self._offers.by_group.clear()
        self._offered.clear()
        return heads.thin_out(lambda classes: self.sort(classes, everybody=False)[1])

    def turns_away(self, waiting: WaitingClass) -> bool:
        """Whether a class was refused before, and what nodes offered it was given to others meanwhile."""
        if not self._tells or waiting.born > self.state.clean_seq or waiting.verdict is Reason.UNDECIDED:
            return False
        stake, *_ = waiting.reach or self._measure(waiting)
        enough = self._offered.get(stake)
        if enough is None:
            enough = self._offered[stake] = self._is_offered(stake, waiting)
        return not enough

    def tells_all_of(self, waiting: WaitingClass) -> bool:
        """Whether one that was not turned away is known to have the GPUs for a task, once others have left."""
        return self._tells and len(waiting.asks) == 1

    def _is_offered(self, stake: Stake, waiting: WaitingClass) -> bool:
        if self._fresh is not self._offers.fresh:
            self._fresh = self._offers.fresh
            self._here.clear()
        here = self._here.get(stake.site)
        if here is None:
            here = self._here[stake.site] = stake.site.nodes & self._fresh
        if not here:
            return False
        offering = self._offers.to(self.state.jobs[waiting.jobs[0][1]])
        return bool(here & offering[min(stake.least, self._offers.gpus_max)])

    def _measure(self, waiting: WaitingClass) -> Reach:
        return measure(self.state.fit, waiting, self.state.jobs[waiting.jobs[0][1]])
