"""The replay: a section of a recording with phalanx in place of the scheduler that was there, in virtual time.

Gangs come when they came and run as long as they ran. Everything else in the cluster is as it was: nodes that come,
go and fail, and what pods of others use of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.kube.shadow.history import History, Section
from phalanx.kube.shadow.watched import Watched
from phalanx.protocol.event import Event, JobCancelled, JobSubmitted
from phalanx.simulate.run import Run
from phalanx.simulate.trace import Ending
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.simulate.world.work import Work

STEPS_MAX = 10_000_000


class Replayed:
    """When phalanx would have started the gangs of a section, by their jobs, in the time of the recording."""

    def __init__(self, history: History, section: Section, policy: str) -> None:
        self._section = section
        self.watched = {
            each.id: each for each in history.watched.values() if each.section == section.number and _is_followed(each)
        }
        self.started: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        works = {each.id: self._work(each) for each in self.watched.values()}
        backend = VirtualBackend(works)
        self._run = Run.of(section.cluster, policy, backend, self._arrivals())
        self._finish()

    def _finish(self) -> None:
        run, end = self._run, self._section.end_ms - self._section.begin_ms
        for _ in range(STEPS_MAX):
            now = run.next_moment()
            if now is None or now > end:
                break
            plan = run.turn(now)
            for job in plan.starts:
                self.started.setdefault(job, now + self._section.begin_ms)
        self.refused = {job: each.why for job, each in run.refused.items()}

    def _work(self, watched: Watched) -> Work:
        """What it has to do. How long one takes that has not ended, nothing tells: it runs to the end and beyond."""
        if watched.started_ms is None or watched.ended_ms is None:
            return Work(None, job=watched.job)
        ending = Ending.FAILED if watched.has_failed else Ending.COMPLETED
        return Work(watched.ended_ms - watched.started_ms, ending, watched.job)

    def _arrivals(self) -> Iterator[tuple[int, Event]]:
        begin = self._section.begin_ms
        steps: list[tuple[int, int, Event]] = [(at_ms, 0, event) for at_ms, event in self._section.beside]
        for watched in self.watched.values():
            steps.append((watched.since_ms, 1, JobSubmitted(watched.job)))
            if watched.started_ms is None and watched.ended_ms is not None:
                steps.append((watched.ended_ms, 2, JobCancelled(watched.id)))
        for at_ms, _, event in sorted(steps, key=lambda step: step[:2]):
            yield at_ms - begin, event


def _is_followed(watched: Watched) -> bool:
    """Whether its wait was seen from its beginning in its section."""
    return not watched.was_there and not watched.is_lost
