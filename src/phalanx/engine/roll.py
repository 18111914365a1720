"""The roll: the kinds of jobs that wait, how far a decision has come with each, and what each is told.

Who is next is for the line that keeps it: `Line`, or `QuotaLine` where queues have quotas.
"""

from __future__ import annotations

from phalanx.engine.draft import Draft
from phalanx.engine.heads import Entry, Heads
from phalanx.engine.quotas import Shortfall
from phalanx.engine.reach import measure
from phalanx.engine.records import JobRecord, Reach, WaitingClass
from phalanx.engine.state import State
from phalanx.protocol.plan import Verdict
from phalanx.protocol.reason import Reason

QUOTA_REASONS = (Reason.QUOTA, Reason.BUDGET)
LASTING = (Reason.NEVER_FITS, *QUOTA_REASONS)
"""Reasons for which nobody else has to wait."""


class Roll:
    """What lines have in common that give out the jobs that are next, and after each are told whether that was placed.

    `head` is the first that is refused where not everybody passes it, `exhaustive` whether everybody was looked at.
    `may_fit` says whether the present job could fit without anybody leaving.
    """

    def __init__(self, state: State, draft: Draft, heads: Heads) -> None:
        self.state = state
        self.draft = draft
        self.head = ""
        self.exhaustive = True
        self.may_fit = True
        self._heads = heads
        self._classes = list(state.classes.values())
        self._next = [0] * len(self._classes)
        self._current = 0
        self._verdicts: dict[int, Verdict] = {}
        self._refused: dict[int, bool] = {}
        self._held_back: dict[int, int] = {}
        self._rejoined: dict[str, None] = {}
        self._growths = draft.growths

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Why classes wait, where that has changed."""
        return tuple(self._verdicts.values())

    def told(self, reason: Reason) -> None:
        """The job waits for a reason that was found out elsewhere, and so does every other of its class."""
        self._refused[self._current] = reason not in LASTING
        self._tell(self._current, reason)

    def helped(self, record: JobRecord) -> None:
        """A job has got its devices after the walk: what its class waits for is to be found out anew."""
        self._verdicts = {
            i: verdict for i, verdict in self._verdicts.items() if self.state.jobs[verdict.job].shape != record.shape
        }

    def next_of_class(self) -> None:
        """Lets the next of a class into the line although the one before was refused: it may get a reservation."""
        waiting = self._classes[self._current]
        if self._next[self._current] + 1 < len(waiting.jobs) and not any(i == self._current for _, _, i in self._heads):
            self._next[self._current] += 1
            self._heads.push(self._entry(self._current))

    def reason_of(self, record: JobRecord, short: Shortfall) -> Reason:
        """What a job waits for that may not have what it asks for; GPUs, if there are not so many left to be lent."""
        if short.by_budget:
            return Reason.BUDGET
        full = not short.by_limit and self.state.capacity.free_total < record.gpus_min
        return Reason.GPUS if full else Reason.QUOTA

    @property
    def is_refused(self) -> bool:
        """Whether the present job was refused before in this walk."""
        return self._current in self._refused

    def _tell(self, i: int, reason: Reason) -> None:
        """What a class waits for, which is told where it is another reason than before."""
        waiting = self._classes[i]
        self._verdicts.pop(i, None)
        if waiting.verdict is not reason:
            self._verdicts[i] = Verdict(waiting.jobs[self._next[i]][1], reason)

    def _start(self, i: int) -> None:
        """The first of a class was placed. Where that was a shorter one, the one that was held back still waits."""
        if self._held_back.get(i) in (None, self._next[i]):
            self._held_back.pop(i, None)
            self._refused.pop(i, None)
            self._verdicts.pop(i, None)
        self._next[i] += 1

    def _hold_back(self, i: int, reason: Reason, spare_ms: int) -> bool:
        """Has the first of a class wait; whether a shorter one stands in line now."""
        waiting, at = self._classes[i], self._next[i]
        self._refused[i] = True
        self._held_back[i] = at
        if waiting.verdict is not reason:
            self._verdicts[i] = Verdict(waiting.jobs[at][1], reason)
        if not waiting.lengths_ms or waiting.lengths_ms[0] > spare_ms:
            return False
        for later in range(at + 1, len(waiting.jobs)):
            if self.state.jobs[waiting.jobs[later][1]].estimate_ms <= spare_ms:
                self._next[i] = later
                self._heads.push(self._entry(i))
                return True
        return False

    def _entry(self, i: int) -> Entry:
        """The first of a class that was not placed yet."""
        key, job = self._classes[i].jobs[self._next[i]]
        return key, job, i

    def _record(self, i: int) -> JobRecord:
        """The first of a class that was not placed yet."""
        return self.state.jobs[self._classes[i].jobs[self._next[i]][1]]

    def _has_more(self, i: int) -> bool:
        """Whether there is one of a class that was not placed yet, or held back with a shorter one placed."""
        return self._next[i] < len(self._classes[i].jobs)

    def _measure(self, waiting: WaitingClass, record: JobRecord) -> Reach:
        """What all jobs of a class have in common, worked out once."""
        return measure(self.state.fit, waiting, record)

    def _is_settled(self, waiting: WaitingClass) -> bool:
        """Whether the class was refused when all classes were last looked at."""
        return waiting.born <= self.state.clean_seq and waiting.verdict is not Reason.UNDECIDED

    def _settled_count(self) -> int:
        """How many classes, of which the newest come last, were there when all were last looked at."""
        settled = len(self._classes)
        while settled and not self._is_settled(self._classes[settled - 1]):
            settled -= 1
        return settled

    def _rejoin(self) -> None:
        """Who lost a claim to the last job stands in line again, at once; one that was held meanwhile does not."""
        for key, attempt in self.draft.withdrawn.items():
            if key not in self._rejoined:
                self._rejoined[key] = None
                record = self.state.jobs[attempt.job.id]
                if not record.held:
                    self._stand_alone(record)
        while self.draft.put_back:
            self._stand_alone(self.draft.put_back.pop())

    def _stand_alone(self, record: JobRecord) -> None:
        """Puts one in line as a class of its own."""
        alone = WaitingClass(self.state.seq)
        alone.add(self.state.order(record), record.job.id)
        self._classes.append(alone)
        self._next.append(0)
        self._heads.push(self._entry(len(self._classes) - 1))
