"""The watch over nodes: learns from how attempts end, and puts nodes into quarantine and lets them out of it.

What it decides are changes of a node's health like any other: they are journaled with their reason, shown wherever the
health of nodes is, and a restart begins with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phalanx.cluster.cluster import Health
from phalanx.engine.state.state import State
from phalanx.faults.health.blame import Blame
from phalanx.faults.health.canary import Canaries
from phalanx.faults.health.device_watch import DeviceWatch
from phalanx.faults.health.quarantine import Change, Quarantine, Rules
from phalanx.protocol.event import AttemptEnded, Event, Finding, NodeHealthChanged, Outcome
from phalanx.workload.job import Job

AMISS = {"slow": "slow", "hang": "hangs", "lost": "lost", "failing": "fails ranks"}
"""What launchers find that speaks against a node, in words."""


class NodeWatch:
    """Follows one State. It begins with an empty book; nodes that are suspect already are taken as in quarantine. With
    a `canary`, a node in quarantine has to run that before it takes work again.
    """

    def __init__(self, state: State, rules: Rules, canary: Job | None = None) -> None:
        self._state = state
        self._health = self._present()
        self._canaries = Canaries(state, canary) if canary is not None else None
        self._quarantine = Quarantine(Blame.of(self._health), rules, are_canaries=canary is not None)
        self._quarantine.adopt((node for node, is_ in self._health.items() if is_ is Health.SUSPECT), state.now)
        self._devices = DeviceWatch(state, rules)
        self._decided: list[Change] = []
        self._is_news = False
        self._topology, self._seen = state.topology, list(state.capacity.health)

    def note(self, event: Event, now: int) -> None:
        """Takes note of an event before it is folded in: then it is still known where the attempt ran."""
        if isinstance(event, Finding):
            self._note_finding(event, now)
        if not isinstance(event, AttemptEnded) or (self._canaries is not None and self._canaries.is_one(event.job)):
            return
        attempt = self._state.attempt(event.job, event.attempt)
        if attempt is None or attempt.stop_reason is not None or attempt.key in self._state.to_stop:
            return
        nodes = frozenset(slot.node for slot in attempt.placement.slots)
        failed = event.outcome is not Outcome.SUCCEEDED
        self._devices.note(name_of(attempt.job), attempt, failed, now)
        self._decided.extend(self._quarantine.ended(name_of(attempt.job), nodes, failed, now))
        self._is_news = True

    def _note_finding(self, finding: Finding, now: int) -> None:
        """A launcher has found one of its nodes slow or hanging, or that it fails ranks; what it finds of programs, and
        single failures, which end the attempt or do not, blame no node.
        """
        record = self._state.jobs.get(finding.job)
        if record is None or finding.kind not in AMISS:
            return
        name = name_of(record.job)
        self._devices.note_finding(name, finding, now)
        self._quarantine.blame.found(name, finding.node, AMISS[finding.kind], now)
        self._is_news = True

    def events(self, now: int, take_id: Callable[[], str]) -> list[Event]:
        """Nodes and devices that take no new work from now on, or do so again, and canaries, with ids of `take_id`."""
        devices = self._devices.changes(now)
        for each in devices:
            if each.health is Health.SUSPECT:
                # What failed there is explained: the rest of the node is as good as any other.
                self._quarantine.blame.forget(each.node, now)
        changes: list[Event] = [*devices, *self.changes(now)]
        if self._canaries is None:
            return changes
        return [*changes, *self._canaries.events(self._quarantine, take_id, now)]

    def changes(self, now: int) -> list[NodeHealthChanged]:
        """Nodes that take no new work from now on, or do so again, but for what canaries tell."""
        state = self._state
        if state.topology is not self._topology or state.capacity.health != self._seen:
            self._topology, self._seen = state.topology, list(state.capacity.health)
            health = self._present()
            if health != self._health:
                self._follow(health, now)
        due_ms = self._quarantine.next_ms()
        if not self._is_news and (due_ms is None or now < due_ms):
            return []
        decided = [*self._decided, *self._quarantine.changes(self._with(self._health), now)]
        self._decided, self._is_news = [], False
        self._health |= {each.node: each.health for each in decided}
        return [NodeHealthChanged(each.node, each.health, each.reason) for each in decided]

    def _with(self, health: dict[str, Health]) -> dict[str, Health]:
        """The health of nodes, with what was decided already and is not folded in yet."""
        return health | {each.node: each.health for each in self._decided}

    def _follow(self, health: dict[str, Health], now: int) -> None:
        self._quarantine.blame.follow(health, now)
        for node in _fallen(self._health, health):
            self._quarantine.blame.broke(node, now)
        self._health, self._is_news = health, True

    def next_ms(self) -> int | None:
        """When something is to be decided next without anything having happened."""
        due = [at_ms for at_ms in (self._quarantine.next_ms(), self._devices.next_ms()) if at_ms is not None]
        return min(due, default=None)

    def _present(self) -> dict[str, Health]:
        """A spare is well: that it waits for work is no matter of its health."""
        nodes, health = self._state.topology.nodes, self._state.capacity.health
        return {
            node.name: Health.HEALTHY if health[number] is Health.SPARE else health[number]
            for number, node in enumerate(nodes)
        }


def _fallen(before: dict[str, Health], now: dict[str, Health]) -> Iterator[str]:
    """Nodes that have failed since."""
    return (node for node, is_ in now.items() if is_ is Health.FAILED and before.get(node) is not Health.FAILED)


def name_of(job: Job) -> str:
    """What counts as one job: members of an array, and jobs of one user and name, since they run the same."""
    return f"{job.user} {job.array_of or job.name or job.id}"
