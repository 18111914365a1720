"""Reports of running attempts: what of them becomes a record.

The user of a job has the token by which its attempt reports, so a report may be made up. It speaks of the attempt's own
tasks, by their numbers; on which nodes these are the State knows. The same is heard once in ten minutes, and of each
attempt so much in an hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.placement.placement import Slot
from phalanx.protocol.event import Finding, Progress
from phalanx.server.loop.wire import Found, ReportProgress
from phalanx.server.refusal import Refusal
from phalanx.server.store.lineage import Lineage

AGAIN_MS = 600_000
"""After so long the same may be said again of the same task."""

HOUR_MS = 3_600_000
HOURLY_MAX = 30

NO_PROGRESS = ("incarnation", "findings", "tells_progress")


@dataclass(slots=True)
class _Said:
    """What an attempt has found: when each of the last hour, and what of which task."""

    moments: deque[int] = field(default_factory=deque)
    last_ms: dict[tuple[str, int], int] = field(default_factory=dict)


class Reports:
    """Follows one State. What attempts have found is counted from the start of the server on."""

    def __init__(self, state: State, lineage: Lineage) -> None:
        self._state, self._lineage = state, lineage
        self._said: dict[str, _Said] = {}

    def attempt_of(self, body: ReportProgress) -> AttemptRecord:
        """The attempt that reports; one that has ended is told so."""
        attempt = self._state.attempt(body.job, body.attempt)
        if attempt is None:
            raise Refusal("conflict", f"attempt {body.job}/{body.attempt} has ended: stop")
        if body.incarnation != self._lineage.at(attempt.created_ms):
            raise Refusal(
                "conflict", f"attempt {body.job}/{body.attempt} is another since the store was restored: stop"
            )
        return attempt

    def events_of(self, attempt: AttemptRecord, body: ReportProgress, now: int) -> list[Progress | Finding]:
        """What a report says that is to be written down. One of a task that there is not is refused as a whole."""
        findings = list(self._findings(attempt, body, now))
        if not body.tells_progress:
            return list(findings)
        said = {name: value for name, value in msgspec.structs.asdict(body).items() if name not in NO_PROGRESS}
        return [Progress(**said), *findings]

    def _findings(self, attempt: AttemptRecord, body: ReportProgress, now: int) -> Iterator[Finding]:
        slots = {slot.rank: slot for slot in attempt.placement.slots}
        for found in body.findings:
            if found.task not in slots:
                tasks = ", ".join(map(str, slots)) if len(slots) <= 20 else f"{len(slots)} tasks"
                raise Refusal(
                    "invalid", f"finding of task {found.task}: attempt {attempt.key} has {tasks}; look at its gang file"
                )
        for found in body.findings:
            if self._is_heard(attempt.key, found, now):
                slot = slots[found.task]
                device = _device(slot, found.local_rank)
                about = (attempt.job.id, attempt.number, found.kind, found.task)
                yield Finding(*about, slot.node, found.rank, device, found.text)

    def _is_heard(self, key: str, found: Found, now: int) -> bool:
        """Whether it is news, and the attempt has not said too much of late."""
        said = self._said.get(key)
        if said is None:
            self._forget_the_gone()
            said = self._said[key] = _Said()
        while said.moments and now - said.moments[0] >= HOUR_MS:
            said.moments.popleft()
        about = (found.kind, found.task)
        if len(said.moments) >= HOURLY_MAX or now - said.last_ms.get(about, -AGAIN_MS) < AGAIN_MS:
            return False
        said.moments.append(now)
        said.last_ms[about] = now
        return True

    def _forget_the_gone(self) -> None:
        present = {attempt.key for attempt in self._state.attempts_present()}
        if len(self._said) > 2 * max(len(present), 100):
            self._said = {key: said for key, said in self._said.items() if key in present}


def _device(slot: Slot, local_rank: int) -> int:
    """The device of a rank, where each has one."""
    return slot.devices[local_rank] if 0 <= local_rank < len(slot.devices) else -1
