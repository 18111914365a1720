"""What a leader has found out about the tasks of its run, as the scheduler is told it: which are slow, hang or fail."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from phalanx.train.launch.cause import Cause
from phalanx.train.launch.epoch import Agent, Epoch
from phalanx.train.launch.stragglers import Verdict

FAILING_AFTER = 3
"""A task fails its ranks that was the first cause so often in one run, while no other was the cause of more than one
failure that a program does not explain."""

TEXT_MOST = 500
"""What the scheduler takes of a text."""

KINDS = {"hang": "hang", "lost agent": "lost"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is told of one task. Ranks are -1 where it is about the task as a whole."""

    kind: str
    task: int
    text: str
    rank: int = -1
    local_rank: int = -1


@dataclass(slots=True)
class Findings:
    """Takes what a leader sees, and says what of it is to be told. Outside of a job of the scheduler that is nothing,
    since agents have no tasks there.
    """

    _failures: Counter[int] = field(default_factory=Counter)

    def slow(self, epoch: Epoch, verdict: Verdict) -> list[Finding]:
        """A rank has begun to be slow, or ceased."""
        kind = "slow" if verdict.is_slow else "recovered"
        return _about(epoch, verdict.rank, kind, verdict.text)

    def failed(self, epoch: Epoch, cause: Cause) -> list[Finding]:
        """The first cause of a failure of an epoch."""
        kind = KINDS.get(cause.kind, "failed")
        if cause.rank >= 0:
            found = _about(epoch, cause.rank, kind, cause.text)
        else:
            lost = next((member for member in epoch.members if member.name == cause.agent), None)
            found = [_found(lost, kind, cause.text)] if lost is not None and lost.task >= 0 else []
        return found if cause.is_program else [*found, *self._again(found)]

    def _again(self, found: list[Finding]) -> list[Finding]:
        """That a task fails its ranks again and again, when it does so once more."""
        for each in found:
            self._failures[each.task] += 1
        others = [count for task, count in self._failures.items() if task not in (each.task for each in found)]
        return [
            Finding("failing", each.task, f"the first cause of {count} failures of this run, the last: {each.text}")
            for each in found
            if (count := self._failures[each.task]) >= FAILING_AFTER and max(others, default=0) <= 1
        ]


def _about(epoch: Epoch, rank: int, kind: str, text: str) -> list[Finding]:
    """What is told of a rank, by the task that it is in."""
    for member in epoch.members:
        local_rank = rank - epoch.first_rank(member.name)
        if 0 <= local_rank < member.slots and member.task >= 0:
            return [_found(member, kind, text, rank, local_rank)]
    return []


def _found(member: Agent, kind: str, text: str, rank: int = -1, local_rank: int = -1) -> Finding:
    return Finding(kind, member.task, text[:TEXT_MOST], rank, local_rank)
