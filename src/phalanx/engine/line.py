"""The line: admitted jobs in the order in which they claim capacity, one try for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from phalanx.engine.draft import Draft
from phalanx.engine.plan import LACK_REASON, Reason, Verdict
from phalanx.engine.records import JobRecord, WaitingClass
from phalanx.engine.state import State
from phalanx.placement.placement import Lack
from phalanx.policy.policy import Key, always, never

Entry = tuple[Key, str, int]


class Line:
    """Walks the waiting classes by their heads. After each job it is told whether that was placed or refused.

    A class that was refused before, and for which nothing has grown since, is passed over: it would be refused again.
    Where the policy lets not everybody pass, the first that is refused becomes the head.
    """

    def __init__(self, state: State, draft: Draft) -> None:
        self.state = state
        self.draft = draft
        self.verdicts: list[Verdict] = []
        self.head = ""
        self.exhaustive = True
        self._refused = False
        self._classes = list(state.classes.values())
        self._next = [0] * len(self._classes)
        self._passed_over: list[int] = []
        self._fresh = draft.fresh
        self._heap: list[Entry] = []
        for i, waiting in enumerate(self._classes):
            if self._known_refused(waiting):
                self._passed_over.append(i)
            else:
                self._heap.append((*waiting.head, i))
        heapify(self._heap)
        self._current = 0

    def __iter__(self) -> Iterator[JobRecord]:
        while self._heap:
            _, job, self._current = heappop(self._heap)
            record = self.state.jobs[job]
            if self.head and not self.state.policy.backfill(self.state.jobs[self.head], record):
                self.exhaustive = False
                if self.state.policy.backfill is never:
                    return
                continue
            yield record
            self._look_again()

    @property
    def nobody_waits(self) -> bool:
        """Whether everybody in line got their devices, but for those who never will."""
        refused = (waiting.verdict for waiting in (self._classes[i] for i in self._passed_over))
        return not self._refused and all(reason is Reason.NEVER_FITS for reason in refused)

    def placed(self) -> None:
        """The job got its devices: the next of its class has a try."""
        waiting = self._classes[self._current]
        self._next[self._current] += 1
        at = self._next[self._current]
        if at < len(waiting.jobs):
            heappush(self._heap, (*waiting.jobs[at], self._current))

    def refused(self, lack: Lack) -> None:
        """The job does not fit, and so does no other of its class."""
        waiting = self._classes[self._current]
        job = waiting.jobs[self._next[self._current]][1]
        reason = LACK_REASON[lack]
        self._refused |= lack is not Lack.NEVER
        if waiting.verdict is not reason:
            self.verdicts.append(Verdict(job, reason))
        if not self.head and lack is not Lack.NEVER and self.state.policy.backfill is not always:
            self.head = job

    def _known_refused(self, waiting: WaitingClass) -> bool:
        if self.state.policy.backfill is not always:
            return False
        if waiting.born >= self.state.clean_seq or waiting.verdict is Reason.UNDECIDED:
            return False
        return not self._reach(waiting) & self.draft.fresh

    def _reach(self, waiting: WaitingClass) -> int:
        """Nodes on which a class could ever run."""
        if waiting.reach is None:
            record = self.state.jobs[waiting.head[1]]
            waiting.reach = 0
            for task in record.tasks.values():
                waiting.reach |= self.state.fit.ask(task, record.job).eligible
        return waiting.reach

    def _look_again(self) -> None:
        """Victims of the last job may have left more than it needs: who was passed over may fit there now."""
        if self.draft.fresh == self._fresh:
            return
        self._fresh = self.draft.fresh
        still = []
        for i in self._passed_over:
            if self._known_refused(self._classes[i]):
                still.append(i)
            else:
                heappush(self._heap, (*self._classes[i].head, i))
        self._passed_over = still
