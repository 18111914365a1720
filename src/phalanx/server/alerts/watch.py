"""The watch: follows the journal and knows which rules are true of which jobs and nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.cluster.cluster import Health
from phalanx.protocol.action import Stop
from phalanx.protocol.event import AttemptEnded, Event, JobCancelled, NodeHealthChanged, Progress
from phalanx.protocol.plan import Plan
from phalanx.server.alerts.rules import Rule, Then, When


class Alert(NamedTuple):
    """A rule that is true of a job or node, since when, and the figure behind it."""

    rule: str
    subject: str
    since_ms: int
    value: float
    then: Then


@dataclass(slots=True)
class Report:
    """What an attempt has said of itself so far. `measures` says that it ever told anything of its GPUs."""

    attempt: int
    first_ms: int
    busy: dict[str, int] = field(default_factory=dict)
    step: int = -1
    step_ms: int = 0
    gpu_busy: float = 0.0
    measures: bool = False


class Watch:
    """Rules, and what is needed of the past to say whether they hold. Of jobs that never report it knows nothing."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._reports: dict[str, Report] = {}
        self._falls: dict[str, deque[int]] = {}
        self.horizon_ms = max((rule.for_ms for rule in rules), default=0)

    def note(self, body: Event | Plan, now: int) -> None:
        """Takes note of a record."""
        match body:
            case Progress():
                self._note_progress(body, now)
            case AttemptEnded(job=job) | JobCancelled(job=job):
                self._reports.pop(job, None)
            case Plan(actions=actions):
                for action in actions:
                    if isinstance(action, Stop):
                        self._reports.pop(action.id.job, None)
            case NodeHealthChanged(node=node, health=health) if health in (Health.FAILED, Health.SUSPECT):
                self._falls.setdefault(node, deque()).append(now)

    def _note_progress(self, progress: Progress, now: int) -> None:
        report = self._reports.get(progress.job)
        if report is None or report.attempt != progress.attempt:
            report = self._reports[progress.job] = Report(progress.attempt, now, step_ms=now)
        report.gpu_busy = progress.gpu_busy
        # A job that never measures says 0 as well: to stop that one would be to stop a job that works.
        report.measures = report.measures or progress.gpu_busy > 0 or progress.memory_gb > 0
        if progress.step > report.step:
            report.step, report.step_ms = progress.step, now
        for rule in self._rules:
            if rule.when is When.IDLE_GPUS and progress.gpu_busy >= rule.busy_below:
                report.busy[rule.name] = now

    def firing(self, now: int) -> list[Alert]:
        """The rules that are true now, and of what."""
        return [alert for rule in self._rules for alert in self._of(rule, now)]

    def _of(self, rule: Rule, now: int) -> Iterator[Alert]:
        match rule.when:
            case When.IDLE_GPUS:
                for job, report in self._reports.items():
                    since_ms = report.busy.get(rule.name, report.first_ms)
                    if report.measures and now - since_ms >= rule.for_ms:
                        yield Alert(rule.name, job, since_ms, report.gpu_busy, rule.then)
            case When.STUCK_JOB:
                for job, report in self._reports.items():
                    if now - report.step_ms >= rule.for_ms:
                        yield Alert(rule.name, job, report.step_ms, report.step, rule.then)
            case When.FLAPPING_NODE:
                for node, falls in self._falls.items():
                    while falls and now - falls[0] > self.horizon_ms:
                        falls.popleft()
                    recent = [at for at in falls if now - at <= rule.for_ms]
                    if len(recent) >= rule.times:
                        yield Alert(rule.name, node, recent[0], len(recent), rule.then)
