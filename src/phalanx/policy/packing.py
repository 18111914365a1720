"""Packing: two jobs that take turns are tried at the same time, and stay so if they get more done (gandiva).

What each gets done is what it says itself. Taking turns, a job has its part of the round less what switching costs; if
the two get more than that done in the mean, each against its own, they stay packed. Else they take turns again, and are
not tried together for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from phalanx.cluster.device import Mode, Portion
from phalanx.policy.company import companions, observe_steps, step_ms
from phalanx.policy.policy import Memory
from phalanx.policy.view import Adjustment, JobView, Moment
from phalanx.protocol.event import AttemptEnded, Event, JobCancelled, Progress
from phalanx.workload.sizes import leaves

Pair = tuple[str, str]
"""Two jobs, the earlier submitted first."""

MB_PER_GB = 1024
BREAK_EVEN = 2.0
"""What two jobs get done in turns, each counted as one."""


class Known(NamedTuple):
    """What is known of a pair in turns: the time of a step of each, and how many took turns."""

    pair: Pair
    first_ms: float
    second_ms: float
    turns: int


@dataclass(frozen=True, slots=True)
class Packing:
    """`interval_ms` is how long a pair runs before what it says of itself counts; `retry_ms` how long one that was
    undone is left alone.
    """

    interval_ms: int
    retry_ms: int

    def adjusts(self, memory: Memory, job: JobView, at: Moment) -> Mapping[str, Adjustment]:
        """Has a job share its turn with another, or no longer."""
        devices = at.sharing(job.job.id)
        # All jobs on a shared device share it in the same way.
        if not devices or any(device[job.job.id].mode is not Mode.TURNS for device in devices):
            return {}
        own = self._step_ms(memory, job.job.id, at)
        here = list(dict.fromkeys(name for device in devices for name in device if name != job.job.id))
        packed = [name for name in here if _are_packed(job.job.id, name, devices[0])]
        changes = _forsaken(memory, job.job.id, devices[0], here)
        if packed:
            return {**changes, **self._judge(memory, _pair(job, packed[0], at), at)}
        if own is None:
            return changes
        for name in here:
            pair = _pair(job, name, at)
            if self._may_try(memory, pair, at):
                return {**changes, **self._try(memory, pair, at)}
        return changes

    def _step_ms(self, memory: Memory, job: str, at: Moment) -> float | None:
        return step_ms(memory, job, companions(job, at.sharing(job)), at.now, self.interval_ms)

    def _may_try(self, memory: Memory, pair: Pair, at: Moment) -> bool:
        """Whether two may share a turn: they have all devices in common and no other partner, and GPUs are short."""
        pairs, undone = memory.get("pairs", {}), memory.get("undone", {})
        if pair[0] in pairs or pair[1] in pairs or undone.get(pair[0], {}).get(pair[1], 0) > at.now:
            return False
        first, second = (at.job(name) for name in pair)
        devices = at.sharing(pair[0])
        if first.gpus != second.gpus or not all(pair[1] in device for device in devices):
            return False
        if any(_partner(name, device) for device in devices for name in pair):
            return False
        return _fits(memory, pair, at) and at.free_gpus < second.gpus

    def _try(self, memory: Memory, pair: Pair, at: Moment) -> Mapping[str, Adjustment]:
        """Has a pair run at the same time, if it is known what each gets done in turns."""
        first_ms, second_ms = (self._step_ms(memory, name, at) for name in pair)
        if first_ms is None or second_ms is None:
            return {}
        known = Known(pair, first_ms, second_ms, _turns(pair, at))
        memory.setdefault("pairs", {}).update(dict.fromkeys(pair, known))
        return {pair[1]: Adjustment(beside=pair[0])}

    def _judge(self, memory: Memory, pair: Pair, at: Moment) -> Mapping[str, Adjustment]:
        """Has a pair take turns again that gets less done at the same time."""
        before: Known | None = memory.get("pairs", {}).get(pair[0])
        if before is None or before.pair != pair:
            return {pair[1]: ALONE, pair[0]: ALONE}
        first_ms, second_ms = (self._step_ms(memory, name, at) for name in pair)
        if first_ms is None or second_ms is None:
            return {}
        # With more or fewer jobs in the round a turn comes round less or more often.
        part = _turns(pair, at) / before.turns
        if part * (before.first_ms / first_ms + before.second_ms / second_ms) > BREAK_EVEN:
            return {}
        _part(memory, pair[0])
        memory.setdefault("undone", {}).setdefault(pair[0], {})[pair[1]] = at.now + self.retry_ms
        return {pair[1]: ALONE, pair[0]: ALONE}


ALONE = Adjustment(beside="")


def observe_pairs(memory: Memory, event: Event, now: int) -> None:
    """Takes note of reports, and forgets pairs of which one has ended."""
    observe_steps(memory, event, now)
    if isinstance(event, JobCancelled | AttemptEnded):
        _part(memory, event.job)
        for known in ("undone", "memory_gb"):
            memory.get(known, {}).pop(event.job, None)
    elif isinstance(event, Progress) and event.memory_gb > 0:
        memory.setdefault("memory_gb", {})[event.job] = event.memory_gb


def _part(memory: Memory, job: str) -> None:
    """Forgets the pair that a job is of."""
    pairs = memory.get("pairs", {})
    known: Known | None = pairs.get(job)
    for name in known.pair if known is not None else ():
        pairs.pop(name, None)


def _pair(job: JobView, other: str, at: Moment) -> Pair:
    return (job.job.id, other) if job.number < at.job(other).number else (other, job.job.id)


def _are_packed(one: str, other: str, device: Mapping[str, Portion]) -> bool:
    return device[one].beside == other or (other in device and device[other].beside == one)


def _partner(job: str, device: Mapping[str, Portion]) -> str:
    """The job with which a job shares its turn."""
    return next((name for name in device if name != job and _are_packed(job, name, device)), "")


def _forsaken(memory: Memory, job: str, device: Mapping[str, Portion], here: list[str]) -> dict[str, Adjustment]:
    """A job that shares its turn with one that is gone, or was to, has it to itself again."""
    known: Known | None = memory.get("pairs", {}).get(job)
    if known is not None and not all(name == job or name in here for name in known.pair):
        _part(memory, job)
    beside = device[job].beside
    return {job: ALONE} if beside and beside not in here else {}


def _turns(pair: Pair, at: Moment) -> int:
    """How many go round on the devices of a pair."""
    return max(len(device) for device in at.sharing(pair[0]))


def _fits(memory: Memory, pair: Pair, at: Moment) -> bool:
    """Whether the memory of a device suffices for both, by what they ask for or say they have; not known, it does."""
    need_mb = sum(MB_PER_GB * _memory_gb(memory, at.job(name)) for name in pair)
    portions = (device[pair[0]] for device in at.sharing(pair[0]))
    return all(not each.memory_mb or need_mb <= each.memory_mb * (each.turns or 1) for each in portions)


def _memory_gb(memory: Memory, job: JobView) -> float:
    asked = max((role.task.gpu_memory_gb for role, _ in leaves(job.job.gang.roles)), default=0.0)
    return max(asked, float(memory.get("memory_gb", {}).get(job.job.id, 0.0)))
