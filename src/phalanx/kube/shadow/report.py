"""The report: which gangs phalanx would have started earlier, and why GPUs did nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.beside.waits import Summary, Wait, summary
from phalanx.kube.shadow.history import History
from phalanx.kube.shadow.idle import Why
from phalanx.kube.shadow.replay import Replayed
from phalanx.kube.shadow.watched import Watched

ALIKE_MS = 1000
"""Waits that differ by no more count as the same: neither scheduler decides in no time."""


@dataclass(frozen=True, slots=True)
class GangWait:
    """One gang: how long it waited for the scheduler that is there, and how long it would have for phalanx. None: it
    had not started when the recording of it ended. `held_ms` are GPU milliseconds that it held before it was whole.
    """

    job: str
    namespace: str
    pods: int
    gpus: int
    seen_ms: int
    theirs_ms: int | None
    ours_ms: int | None
    held_ms: int

    @property
    def earlier_ms(self) -> int:
        """How much earlier phalanx would have started it, as far as is known."""
        if self.theirs_ms is None or self.ours_ms is None:
            return 0
        return self.theirs_ms - self.ours_ms


@dataclass(frozen=True, slots=True)
class Report:
    """What a recording comes to. `seen` gangs arrived in it; the waits of those are compared that started either way.
    `busy_ms` and `idle_ms` are of
    GPUs. `not_counted` ran already when their part of the recording began, or started or ended in a gap.
    """

    recorded_ms: int
    gaps: tuple[tuple[int, int], ...]
    missing: tuple[str, ...]
    gangs: tuple[GangWait, ...]
    waits: Summary
    theirs_only: int
    ours_only: int
    neither: int
    not_counted: int
    left_out: dict[str, int]
    busy_ms: int
    idle_ms: dict[Why, int]


def report_of(history: History, policy: str) -> Report:
    """Judges a recording."""
    gangs = tuple(sorted(_gangs(history, policy), key=lambda gang: (-gang.earlier_ms, gang.seen_ms, gang.job)))
    both = [
        Wait(gang.theirs_ms, gang.ours_ms) for gang in gangs if gang.theirs_ms is not None and gang.ours_ms is not None
    ]
    return Report(
        recorded_ms=sum(section.end_ms - section.begin_ms for section in history.sections),
        gaps=tuple(history.gaps),
        missing=tuple(f"{kind}: {why}" for kind, why in history.missing.items()),
        gangs=gangs,
        waits=summary(both, ALIKE_MS),
        theirs_only=sum(gang.theirs_ms is not None and gang.ours_ms is None for gang in gangs),
        ours_only=sum(gang.theirs_ms is None and gang.ours_ms is not None for gang in gangs),
        neither=sum(gang.theirs_ms is None and gang.ours_ms is None for gang in gangs),
        not_counted=len(history.watched) - len(gangs),
        left_out=dict(history.left_out),
        busy_ms=history.idle.busy,
        idle_ms={why: history.idle.by[why] for why in Why},
    )


def _gangs(history: History, policy: str) -> Iterator[GangWait]:
    for section in history.sections:
        replayed = Replayed(history, section, policy)
        for watched in replayed.watched.values():
            if watched.job.id not in replayed.refused:
                yield _wait(history, watched, replayed.started.get(watched.id))


def _wait(history: History, watched: Watched, ours: int | None) -> GangWait:
    theirs = watched.started_ms
    return GangWait(
        job=watched.id,
        namespace=watched.job.user,
        pods=len(watched.pods),
        gpus=watched.gpus,
        seen_ms=watched.since_ms,
        theirs_ms=theirs - watched.since_ms if theirs is not None else None,
        ours_ms=ours - watched.since_ms if ours is not None else None,
        held_ms=history.idle.gangs[watched.id],
    )
