"""The history: a recording read from its beginning, as gangs that came, were placed and ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from phalanx.cluster.cluster import Cluster
from phalanx.kube.api.reflector import Changed, Listed
from phalanx.kube.capacity import Capacity
from phalanx.kube.gangs.bundle import Bundle, RefusedError, job_of
from phalanx.kube.gangs.forming import form
from phalanx.kube.gangs.groups import Family
from phalanx.kube.gangs.sub_groups import Placed
from phalanx.kube.nodes import TOPOLOGY_LABELS
from phalanx.kube.objects.ended import SeenPod
from phalanx.kube.objects.meta import Labels
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import demand_of
from phalanx.kube.shadow.idle import Idle
from phalanx.kube.shadow.onlooker import Onlooker
from phalanx.kube.shadow.recording import ALIVE, BEGIN, GONE, MISSING, READY, THERE, Entry, RecordingError
from phalanx.kube.shadow.sources import types
from phalanx.kube.shadow.watched import Watched
from phalanx.protocol.event import Event

Moments = list[tuple[int, Event]]


@dataclass(slots=True)
class Section:
    """A stretch in which nothing was missed, with what became of the cluster in it: `beside` the gangs that were
    watched in it from their arrival.
    """

    number: int
    begin_ms: int
    cluster: Cluster
    end_ms: int = 0
    beside: Moments = field(default_factory=list)


@dataclass(slots=True)
class History:
    """All that a recording tells. `beside` is what became of the cluster beside the gangs that ran."""

    sections: list[Section] = field(default_factory=list)
    watched: dict[str, Watched] = field(default_factory=dict)
    beside: Moments = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    idle: Idle = field(default_factory=Idle)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Stretches of which nothing is known."""
        pairs = zip(self.sections, self.sections[1:], strict=False)
        return [(before.end_ms, after.begin_ms) for before, after in pairs]


def history_of(entries: Iterable[Entry], topology: tuple[str, ...] = TOPOLOGY_LABELS) -> History:
    """Reads a recording."""
    reader = _Reader(topology)
    for entry in entries:
        reader.read(entry)
    if not reader.history.sections:
        raise RecordingError("the recording has no beginning yet: nothing was listed")
    reader.close()
    return reader.history


class _Reader:
    """Reads one line after the other."""

    def __init__(self, topology: tuple[str, ...]) -> None:
        self.history = History()
        self._mirror = Onlooker()
        self._topology = topology
        self._types = types()
        self._now = 0
        self._listing: dict[str, list[Any]] | None = None
        self._of_pod: dict[str, Watched] = {}
        self._live: dict[Family, dict[str, Watched]] = {}
        self._ahead_ms = 0
        self._held: dict[str, None] = {}
        self._followed: dict[str, None] = {}
        self._running: Capacity = self._capacity(self._held)
        self._following: Capacity = self._capacity(self._followed)

    def _capacity(self, owned: dict[str, None]) -> Capacity:
        return Capacity(self._mirror, self._topology, owned, lambda: (), dict, lambda: ())

    def read(self, entry: Entry) -> None:
        """Takes one line in."""
        self._now = max(entry.at_ms, self._now)
        match entry.what:
            case str(what) if what == BEGIN:
                self._listing = {}
                self._ahead_ms = entry.ahead_ms
            case str(what) if what == READY:
                self._begin(entry.kinds)
            case str(what) if what == MISSING:
                self.history.missing[entry.kind] = entry.why
            case str(what) if what in (THERE, GONE) and entry.kind in self._types:
                self._put(entry.kind, msgspec.json.decode(entry.object, type=self._types[entry.kind]), what == GONE)
            case str(what) if what == ALIVE:
                self.history.idle.until(self._now)
            case _:
                return
        if self.history.sections and self._listing is None:
            self.history.sections[-1].end_ms = self._now

    def close(self) -> None:
        """What is so at the end."""
        for watched in self.history.watched.values():
            if watched.is_pending and not watched.is_lost:
                self.history.reasons[watched.id] = next(filter(None, map(self._said, watched.pods)), "")

    def _said(self, pod: Pod) -> str:
        """What its scheduler says of a pod that waits."""
        now = self._mirror.pods.get(pod.metadata.key, pod)
        return next((each.message for each in now.status.conditions or () if each.status == "False"), "")

    def _put(self, kind: str, it: Any, gone: bool) -> None:
        if self._listing is not None:
            if gone:
                self._listing[kind] = [
                    each for each in self._listing.get(kind, []) if each.metadata.key != it.metadata.key
                ]
            else:
                self._listing.setdefault(kind, []).append(it)
            return
        self.history.idle.until(self._now)
        self._mirror.take(Changed(kind, it, gone))
        self._look(is_list=False)

    def _begin(self, kinds: tuple[str, ...]) -> None:
        listing, self._listing = self._listing or {}, None
        for kind in kinds:
            self._mirror.take(Listed(kind, tuple(listing.get(kind, ()))))
        history = self.history
        if not history.sections:
            self._running.define()
        self._followed.clear()
        self._following = self._capacity(self._followed)
        history.sections.append(Section(len(history.sections), self._now, self._following.define(), self._now))
        # All is told anew, as nothing was before.
        self._mirror.nodes_changed = True
        self._mirror.nodes_used.update(dict.fromkeys(self._mirror.nodes))
        history.idle.begin(self._now)
        for watched in [each for of in self._live.values() for each in of.values()]:
            self._go_on(watched)
        self._look(is_list=True)

    def _go_on(self, watched: Watched) -> None:
        """It is there from one section to the next. Of a pending one the wait counts anew."""
        watched.section, watched.since_ms = len(self.history.sections) - 1, self._now
        self._mirror.families[watched.family] = None
        if watched.is_pending:
            self._followed.update(dict.fromkeys(pod.metadata.key for pod in watched.pods))

    def _look(self, is_list: bool) -> None:
        mirror = self._mirror
        families = list(mirror.families)
        mirror.families.clear()
        for family in families:
            for watched in list(self._live.get(family, {}).values()):
                self._follow(watched, is_list)
            self._form(family, is_list)
        changed, used = mirror.nodes_changed, dict(mirror.nodes_used)
        self.history.idle.look_at(used, mirror, {node: mirror.uses(node, ()).gpus for node in used})
        self.history.beside += ((self._now, event) for event in self._running.events())
        mirror.nodes_changed, mirror.others_changed = changed, False
        mirror.nodes_used.update(used)
        self.history.sections[-1].beside += ((self._now, event) for event in self._following.events())

    def _form(self, family: Family, is_list: bool) -> None:
        mirror = self._mirror
        group = mirror.group(family)
        pods = [mirror.pods[key] for key in mirror.members(family)]
        free = [pod for pod in pods if pod.metadata.uid not in self._of_pod and self._counts(pod, is_list)]
        if not free:
            return
        if group is None or group.unsupported:
            # A gang of which nothing says how many it needs: its scheduler takes pod by pod.
            alone = (form(pod.metadata.key, None, [pod], Placed(), is_pending=False) for pod in free)
            bundles = [bundle for formed in alone for bundle in formed.bundles]
        else:
            there = [
                (pod, self._of_pod[pod.metadata.uid].nodes.get(pod.metadata.key, ""))
                for pod in pods
                if pod.metadata.uid in self._of_pod and not pod.is_over
            ]
            bundles = list(form(family, group, free, Placed(tuple(there), self._labels_of), False).bundles)
        for bundle in bundles:
            self._add(bundle, family, is_list)

    def _labels_of(self, node: str) -> Labels:
        found = self._mirror.nodes.get(node)
        return (found.metadata.labels or {}) if found is not None else {}

    def _counts(self, pod: Pod, is_list: bool) -> bool:
        """Whether a pod is, or was when all began, work of which something is known."""
        if pod.is_over:
            return is_list and bool(pod.spec.node_name) and isinstance(pod, SeenPod) and bool(pod.finished_at)
        return not pod.is_leaving

    def _add(self, bundle: Bundle, family: Family, is_list: bool) -> None:
        try:
            job = job_of(bundle, self._running.gpu_types)
        except RefusedError as error:
            self.history.left_out[str(error)[:100]] += 1
            return
        if job.id in self.history.watched:
            return
        created = max(self._ms(pod.metadata.creation_timestamp) for pod in bundle.pods)
        arrived = min(created, self._now) if is_list else self._now
        watched = Watched(bundle, family, job, len(self.history.sections) - 1, arrived, self._now)
        self.history.watched[job.id] = watched
        self._live.setdefault(family, {})[job.id] = watched
        self.history.idle.pends(job)
        for pod in bundle.pods:
            self._of_pod[pod.metadata.uid] = watched
            self._followed[pod.metadata.key] = None
        self._use(watched)
        self._follow(watched, is_list)

    def _use(self, watched: Watched) -> None:
        """What is used beside it is to be counted anew."""
        pods = self._mirror.pods
        nodes = (pods[each.metadata.key].spec.node_name for each in watched.pods if each.metadata.key in pods)
        self._mirror.nodes_used.update(dict.fromkeys(filter(None, (*nodes, *watched.nodes.values()))))

    def _follow(self, watched: Watched, is_list: bool) -> None:
        """Takes note of what became of the pods of a gang."""
        there = self._there(watched)
        watched.nodes.update({key: pod.spec.node_name for key, pod in there.items() if pod.spec.node_name})
        if watched.started_ms is None:
            if len(watched.nodes) == len(watched.pods):
                self._start(watched, is_list, there)
            elif len(there) < len(watched.pods) or any(pod.is_over or pod.is_leaving for pod in there.values()):
                self._give_up(watched)
                return
            else:
                self.history.idle.holds(watched.job, sum(demand_of(there[key]).gpus for key in watched.nodes))
        elif is_list:
            watched.was_there = True
            self._keep_out(watched)
        if watched.started_ms is not None and all(pod.is_over for pod in there.values()):
            self._end(watched, is_list, there)

    def _give_up(self, watched: Watched) -> None:
        """It was never whole, and is not what it was. Its other pods are looked at anew."""
        watched.has_failed, watched.ended_ms = True, self._now
        self.history.idle.settles(watched.job)
        self._drop(watched)
        self._mirror.families[watched.family] = None

    def _there(self, watched: Watched) -> dict[str, Pod]:
        found = ((pod, self._mirror.pods.get(pod.metadata.key)) for pod in watched.pods)
        return {pod.metadata.key: now for pod, now in found if now is not None and now.metadata.uid == pod.metadata.uid}

    def _start(self, watched: Watched, is_list: bool, there: dict[str, Pod]) -> None:
        watched.started_ms = self._now
        self.history.idle.settles(watched.job)
        if is_list:
            watched.was_there = True
            bound = max(self._ms(pod.bound_at) for pod in there.values()) if there else self._now
            watched.started_ms = max(min(bound, self._now), watched.arrived_ms)
            self._keep_out(watched)
        for pod in watched.pods:
            self._held[pod.metadata.key] = None
        self._use(watched)

    def _keep_out(self, watched: Watched) -> None:
        """It counts as foreign use of the present section."""
        for pod in watched.pods:
            self._followed.pop(pod.metadata.key, None)
        self._use(watched)

    def _end(self, watched: Watched, is_list: bool, there: dict[str, Pod]) -> None:
        assert watched.started_ms is not None, "only what runs ends"
        watched.has_failed = len(there) < len(watched.pods) or any(
            pod.status.phase != "Succeeded" for pod in there.values()
        )
        said = [pod.finished_at for pod in there.values() if isinstance(pod, SeenPod) and pod.finished_at]
        watched.ended_ms = self._now
        if is_list:
            watched.is_lost = len(said) < len(watched.pods)
            ended = max((self._ms(text) for text in said), default=self._now)
            watched.ended_ms = max(min(ended, self._now), watched.started_ms)
        self._drop(watched)

    def _drop(self, watched: Watched) -> None:
        self._live.get(watched.family, {}).pop(watched.id, None)
        if not self._live.get(watched.family):
            self._live.pop(watched.family, None)
        self._use(watched)
        for pod in watched.pods:
            key = pod.metadata.key
            self._held.pop(key, None)
            self._followed.pop(key, None)
            now = self._mirror.pods.get(key)
            if watched.started_ms is None and now is not None:
                # The rest of a gang that never was whole is another gang, once others come for those that are gone.
                self._of_pod.pop(pod.metadata.uid, None)

    def _ms(self, text: str) -> int:
        """A moment that the API server tells, by the clock of the recorder; now where it tells none."""
        try:
            told = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            return self._now
        return int(told.timestamp() * 1000) - self._ahead_ms
