"""The scheduler: what the API server says becomes events, the engine decides, and whole gangs are bound or evicted."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

from phalanx.cluster.cluster import Health
from phalanx.engine.why.explain import explain
from phalanx.kube.arrange.guard import Guard
from phalanx.kube.binder import Answer, Binder, Bound, Evicted
from phalanx.kube.capacity import Capacity
from phalanx.kube.engine import Engine
from phalanx.kube.gangs.arrangement import ANYHOW
from phalanx.kube.gangs.bundle import Bundle, RefusedError, job_of, places_of
from phalanx.kube.gangs.forming import form
from phalanx.kube.gangs.groups import Family, GroupRef
from phalanx.kube.gangs.sub_groups import Placed
from phalanx.kube.jobs.adoption import Adoption
from phalanx.kube.jobs.others import Others
from phalanx.kube.jobs.roster import Roster
from phalanx.kube.jobs.shrinking import Shrinking
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.kube.mirror import Mirror
from phalanx.kube.nodes import health_of
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.meta import Labels
from phalanx.kube.objects.pod import Pod
from phalanx.kube.phrasing import in_kubernetes
from phalanx.kube.pods.budgets import keeps, keeps_always
from phalanx.kube.queues import DEFAULT
from phalanx.kube.reporter import Reporter
from phalanx.kube.settings import Settings
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Action, Start, Stop
from phalanx.protocol.event import (
    AttemptEnded,
    DevicesAssigned,
    Done,
    Event,
    Failed,
    JobCancelled,
    JobChanged,
    JobReleased,
    JobSubmitted,
    Outcome,
)
from phalanx.protocol.reason import Reason
from phalanx.words.reason import because_in

EXPLAINED_MAX = 20
"""Jobs of which a turn works out why they wait: the rest is told by the turns after it."""


class Scheduler:
    """One thread calls `turn`; `answer` and the mirror are fed by the same thread."""

    def __init__(self, mirror: Mirror, binder: Binder, reporter: Reporter, settings: Settings) -> None:
        self._mirror = mirror
        self._binder = binder
        self._reporter = reporter
        self._settings = settings
        self.roster = Roster(mirror)
        self._others = Others(mirror, self.roster)
        self._shrinking = Shrinking(self.roster)
        self._guard = Guard(mirror, self.roster, settings.topology)
        self._capacity = Capacity(
            mirror, settings.topology, self.roster.owner, self._guard.arrangements, self.roster.held, self.roster.levels
        )
        self._held: dict[str, str] = {}
        self._events: list[Event] = []
        self._told: dict[str, Reason | None] = {}
        self._unfit: dict[Family, None] = {}
        self._now = 0
        self.engine: Engine | None = None

    def begin(self, now: int, journal: BinaryIO | None = None) -> None:
        """Takes over what there is: pods that are bound already run on as what they are."""
        engine = self.engine = Engine(self._capacity.define(), self._settings.policy, now, journal)
        adoption = Adoption(engine, self._mirror, self._capacity.gpu_types, now)
        for each in adoption.adopted():
            self.roster.add(each)
        self.roster.doom(adoption.released)
        self._binder.delete(adoption.released)

    def answer(self, answer: Answer) -> None:
        """Takes in what became of a gang that was bound or evicted."""
        tracked = self.roster.tracked.get(answer.job)
        if tracked is None or tracked.attempt != answer.attempt:
            return
        if isinstance(answer, Evicted):
            for pod, why in answer.unsaved:
                self._reporter.preempted(pod, why)
        match answer:
            case Bound(pods=(key,), error=error) if key in tracked.stand_ins:
                if error:
                    tracked.stands_not_in(key)
                else:
                    del tracked.stand_ins[key]
                self._mirror.families[tracked.family] = None
            case Bound(error=""):
                self._bound(tracked)
            case Bound():
                self._unbound(tracked, answer)
            case Evicted(error=error) if error and tracked.stop is not None:
                self._events.append(Failed(tracked.stop, error))
                tracked.stop = None
            case Evicted():
                self._mirror.families[tracked.family] = None

    def turn(self, now: int) -> None:
        """Tells the engine what has changed, and carries out what it decides."""
        engine = self.engine
        assert engine is not None, "begin comes before turn"
        mirror = self._mirror
        self._guard.renew()
        self._now = now
        if mirror.nodes_changed:
            self._capacity.know_types()
        if mirror.others_changed:
            self._bind_provided()
        if mirror.nodes_changed or mirror.nodes_used or mirror.others_changed:
            mirror.others_changed = False
            mirror.families.update(self._unfit)
            self._unfit.clear()
            self._events += map(JobReleased, self._held)
            self._held.clear()
            self._rearrange(engine)
        families = list(mirror.families)
        mirror.families.clear()
        for family in families:
            self._look_at(family)
        self._prefer(engine)
        events, self._events = self._events, []
        appeared = self._others.appeared()
        of_nodes = list(self._capacity.events())
        # What ends comes first, since its devices are free then; what is submitted comes after the nodes it may need.
        ended = [event for event in events if not isinstance(event, JobSubmitted | JobChanged)]
        submitted = [event for event in events if isinstance(event, JobSubmitted | JobChanged)]
        engine.take((*ended, *of_nodes), now)
        self._adopt(appeared, engine, now)
        self._shrink(engine, now)
        for event, why in engine.take(submitted, now):
            self._refused(event, why)
        plan, held = engine.decide(now, self._guard.veto)
        self._hold(held)
        for action in plan.actions:
            self._carry_out(action)
        self._explain(engine)
        self._reporter.conflicts(mirror.queues, self._capacity.conflicts)

    def _adopt(self, appeared: list[Tracked], engine: Engine, now: int) -> None:
        """Has the engine know of pods of others that may make way. What it cannot know is foreign use again."""
        if not appeared:
            return
        for action in self._others.adopt(appeared, engine, self._capacity.gpu_types, now):
            self._carry_out(action)
        engine.take(self._capacity.events(), now)

    def _shrink(self, engine: Engine, now: int) -> None:
        """Has gangs that are not whole any more give back what they do not need."""
        for tracked in self._shrinking.due(now):
            self._mirror.families[tracked.family] = None
            self._mirror.nodes_used.update(dict.fromkeys(tracked.nodes.values()))
            for action in self._shrinking.shrink(tracked, engine, self._capacity.gpu_types, now):
                self._carry_out(action)

    @property
    def is_due(self) -> bool:
        """Whether there is something to tell the engine already."""
        mirror = self._mirror
        return bool(
            self._events or mirror.families or mirror.nodes_used or mirror.nodes_changed or mirror.others_changed
        )

    def _look_at(self, family: Family) -> None:
        """Compares the pods of a family with what is known of them."""
        group = self._mirror.group(family)
        for tracked in self.roster.of_family(family):
            self._follow(tracked, group)
        pods, known = self.roster.pods_of(family), self.roster.of_family(family)
        self._stand_in(known, [pod for pod in pods if self.roster.is_free(pod)])
        is_pending = any(each.least and each.step in (Step.PENDING, Step.BINDING) for each in known)
        placed = Placed(
            tuple((pod, self.roster.node_of(pod)) for pod in pods if self.roster.is_placed(pod)), self._labels_of
        )
        formed = form(family, group, [pod for pod in pods if self.roster.is_free(pod)], placed, is_pending)
        for bundle in formed.bundles:
            if bundle.queue == DEFAULT:
                bundle = replace(bundle, queue=self._mirror.queue_by_label(bundle.pods[0]))
            is_gang = group is not None and group.least > len(placed.pods)
            self._submit(bundle, family, group if is_gang else None)
        for pod, line in formed.waiting:
            self._reporter.pending(pod, line)
        if formed.waiting and not formed.bundles and not is_pending:
            self._say(family, (), formed.waiting[0][1])

    def _stand_in(self, known: Iterable[Tracked], free: list[Pod]) -> None:
        """Binds pods that came for members of a gang which have ended where these were: that is held for the gang."""
        for tracked in known:
            for pod in free if tracked.vacant and tracked.step is Step.BOUND else ():
                try:
                    member = tracked.place_for(pod, self._healthy)
                except ValueError:
                    continue
                if not member or self._guard.refusal(((pod, tracked.nodes[member]),)):
                    continue
                if self.roster.is_free(pod):
                    node = self.roster.stand_in(tracked, pod, member)
                    self._guard.renew()
                    self._binder.bind(tracked.job, tracked.attempt, ((pod, node),))

    @property
    def _healthy(self) -> dict[str, None]:
        return {name: None for name, node in self._mirror.nodes.items() if health_of(node)[0] is Health.HEALTHY}

    def _labels_of(self, node: str) -> Labels:
        """The labels of a node as the engine knows it, with those of its tiers."""
        assert self.engine is not None, "begin comes before turn"
        topology = self.engine.state.topology
        return dict(topology.nodes[topology.number[node]].labels) if node in topology.number else {}

    def _submit(self, bundle: Bundle, family: Family, group: PodGroup | None) -> None:
        assert self.engine is not None, "begin comes before turn"
        state = self.engine.state
        if bundle.id in state.jobs:
            # The same pods again, after their gang was formed in vain.
            generation = sum(1 for each in state.jobs if each.startswith(f"{bundle.id}.")) + 2
            bundle = replace(bundle, id=f"{bundle.id}.{generation}")
        is_kept = bundle.is_kept or keeps_always(self._mirror.budgets.values(), bundle.pods)
        bundle = replace(bundle, is_kept=is_kept)
        bundle = self._guard.arrange(bundle, state)
        try:
            job = job_of(bundle, self._capacity.gpu_types)
        except RefusedError as error:
            self._unfit[family] = None
            self._say(family, bundle.pods, str(error))
            return
        if bundle.arrangement is not ANYHOW or not set(bundle.levels) <= set(self._capacity.cluster.levels):
            self._mirror.nodes_changed = True
        tracked = Tracked(bundle, family)
        if group is not None:
            tracked.least, tracked.says = group.least, group.says
        self.roster.add(tracked)
        self._events.append(JobSubmitted(job))

    def _rearrange(self, engine: Engine) -> None:
        """Arranges pending gangs anew beside what is placed by now."""
        for tracked in list(self.roster.tracked.values()):
            if tracked.step is not Step.PENDING:
                continue
            bundle = self._guard.arrange(tracked.bundle, engine.state)
            if bundle is tracked.bundle:
                continue
            before, tracked.bundle = tracked.bundle, bundle
            self._mirror.nodes_changed = True
            if bundle.arrangement.is_told_as(before.arrangement):
                continue
            try:
                job = job_of(bundle, self._capacity.gpu_types)
            except RefusedError as error:
                self._events.append(JobCancelled(tracked.job, str(error)))
                self._drop(tracked)
                continue
            if before.arrangement.refused or job != job_of(before, self._capacity.gpu_types):
                self._events.append(JobChanged(job))

    def _prefer(self, engine: Engine) -> None:
        """Tells the engine what pending gangs prefer by now, for the sake of what is beside them."""
        changed = {}
        for tracked in self._guard.prefer(engine.state):
            # One that fits no node by now is told so where it is arranged.
            with suppress(RefusedError):
                changed[tracked.job] = job_of(tracked.bundle, self._capacity.gpu_types)
        if not changed:
            return
        # What was not told yet is told once.
        for i, event in enumerate(self._events):
            if isinstance(event, JobSubmitted | JobChanged) and event.job.id in changed:
                self._events[i] = type(event)(changed.pop(event.job.id))
        self._events += map(JobChanged, changed.values())

    def _hold(self, held: dict[str, str]) -> None:
        """Jobs that would have started where they may not are held until something changes."""
        for job, why in held.items():
            self._held[job] = why
            tracked = self.roster.tracked[job]
            self._say(tracked.family, tracked.bundle.pods, why)

    def _say(self, family: Family, pods: Iterable[Pod], line: str) -> None:
        """Writes what pods and their group wait for."""
        for pod in pods:
            self._reporter.pending(pod, line)
        group = self._mirror.object_of(family)
        if isinstance(family, GroupRef) and group is not None:
            self._reporter.group_pending(family, group.metadata, line)

    def _drop(self, tracked: Tracked) -> None:
        """Forgets a job. Pods of it that are still there are looked at anew."""
        self.roster.remove(tracked)
        self._told.pop(tracked.job, None)
        self._held.pop(tracked.job, None)
        for uid in tracked.uids.values():
            self._reporter.forget(uid)
        for node in tracked.nodes.values():
            self._mirror.nodes_used[node] = None
        self._mirror.families[tracked.family] = None

    def _refused(self, event: Event, why: str) -> None:
        if isinstance(event, JobSubmitted):
            tracked = self.roster.tracked[event.job.id]
            self._say(tracked.family, tracked.bundle.pods, why)
            # It is tried again when the nodes or one of its pods change.
            self.roster.remove(tracked)
            self._unfit[tracked.family] = None

    def _follow(self, tracked: Tracked, group: PodGroup | None) -> None:
        """Takes note of what happened to the pods of a job, and to their group."""
        present = self.roster.present(tracked)
        match tracked.step:
            case Step.PENDING:
                is_another = bool(tracked.least) and (group is None or not tracked.is_of(group))
                if (
                    is_another
                    or len(present) < len(tracked.uids)
                    or any(
                        pod.spec.node_name or pod.is_leaving or pod.spec.scheduling_gates for pod in present.values()
                    )
                ):
                    self._events.append(JobCancelled(tracked.job, "its pods or their group are others now"))
                    self._drop(tracked)
            case Step.BINDING if tracked.awaits and len(present) < len(tracked.uids):
                self._unbound(tracked, Bound(tracked.job, tracked.attempt, (), "a pod of it is gone"))
            case Step.BOUND if not present:
                self._events.append(self._ended(tracked))
                self._drop(tracked)
            case Step.BOUND if len(present) < len(tracked.uids):
                there = self.roster.there(tracked)
                tracked.vacate(present, [key for key, pod in there.items() if pod.status.phase == "Succeeded"])
                self._shrinking.note(tracked, self._now)
            case Step.STOPPING if not present and tracked.stop is not None:
                self._events += (JobCancelled(tracked.job, f"evicted: {tracked.stop_reason}"), Done(tracked.stop))
                self._drop(tracked)
            case _:
                pass

    def _ended(self, tracked: Tracked) -> AttemptEnded:
        count = len(tracked.uids) - sum(
            1 for pod in self.roster.there(tracked).values() if pod.status.phase == "Succeeded"
        )
        if not count:
            return AttemptEnded(tracked.job, tracked.attempt, Outcome.SUCCEEDED, cause="exit")
        reason = f"{count} of {len(tracked.uids)} pods failed or were deleted"
        return AttemptEnded(tracked.job, tracked.attempt, Outcome.FAILED, exit_code=1, reason=reason, cause="exit")

    def _bound(self, tracked: Tracked) -> None:
        if tracked.start is not None:
            self._events.append(Done(tracked.start))
            tracked.start = None
        for uid in tracked.uids.values():
            self._reporter.forget(uid)
        group = self._mirror.group(tracked.family)
        if isinstance(tracked.family, GroupRef) and group is not None and tracked.least:
            self._reporter.group_started(tracked.family, group.metadata)
        if tracked.stop is not None:
            self._evict(tracked)
            return
        tracked.step = Step.BOUND
        self._mirror.families[tracked.family] = None

    def _unbound(self, tracked: Tracked, answer: Bound) -> None:
        """A pod could not be bound. Pods that were are deleted: what is left is another gang."""
        if answer.undone or tracked.stop is not None:
            self._events.append(JobCancelled(tracked.job, answer.error))
            self.roster.doom(tuple(pod for pod in tracked.bundle.pods if pod.metadata.key in answer.undone))
        for action in (tracked.start, tracked.stop):
            if action is not None:
                self._events.append(Failed(action, answer.error))
        self._say(tracked.family, tracked.bundle.pods, f"it could not be bound: {answer.error}")
        if answer.undone or tracked.stop is not None:
            self._drop(tracked)
            return
        tracked.start, tracked.nodes, tracked.awaits, tracked.step = None, {}, (), Step.PENDING
        self._mirror.families[tracked.family] = None

    def _carry_out(self, action: Action) -> None:
        tracked = self.roster.tracked.get(action.id.job)
        match action:
            case Stop() if tracked is None:
                self._events.append(Done(action.id))
            case _ if tracked is None:
                self._events.append(Failed(action.id, "its pods are gone", retryable=False))
            case Start():
                self._start(tracked, action, tuple(places_of(tracked.bundle, self._as_wished(tracked, action))))
            case Stop(reason="misplaced"):
                # It runs where Kubernetes says that it does: from now on it counts as foreign use.
                self._events += (JobCancelled(tracked.job, "it runs where it was not planned"), Done(action.id))
                self._drop(tracked)
                self._others.leave(tracked.uids.values())
            case Stop() if self._others.is_gone_with_node(tracked):
                # What becomes of it is not for this scheduler to say.
                self._events += (JobCancelled(tracked.job, "its node is gone"), Done(action.id))
                self._drop(tracked)
            case Stop(reason=reason):
                tracked.stop, tracked.stop_reason = action.id, reason
                if tracked.awaits:
                    self._unbound(tracked, Bound(tracked.job, tracked.attempt, (), "its volumes were not made in time"))
                elif tracked.step is not Step.BINDING:
                    self._evict(tracked)
            case _:
                self._events.append(Failed(action.id, "Kubernetes cannot do that", retryable=False))

    def _as_wished(self, tracked: Tracked, action: Start) -> Placement:
        """The placement of a gang that starts, with its pods as they prefer to lie beside one another."""
        assert self.engine is not None, "begin comes before turn"
        state, planned = self.engine.state, action.placement
        attempt = state.attempt(tracked.job, action.id.attempt)
        slots = self._guard.wished(tracked.bundle, attempt, state) if attempt is not None else ()
        if not slots or self.engine.take((DevicesAssigned(tracked.job, action.id.attempt, slots),), state.now):
            return planned
        return replace(planned, slots=slots)

    def _start(self, tracked: Tracked, action: Start, places: tuple[tuple[Pod, str], ...]) -> None:
        refusal = self._guard.refusal(places)
        if refusal:
            # Its devices were claimed when that was not so yet.
            self._events.append(Failed(action.id, refusal))
            self._say(tracked.family, tracked.bundle.pods, refusal)
            return
        tracked.start, tracked.attempt = action.id, action.id.attempt
        tracked.step = Step.BINDING
        tracked.nodes = {pod.metadata.key: node for pod, node in places}
        self._guard.placed(places)
        storage = self._mirror.storage
        claims = tuple((claim, node) for pod, node in places for claim in storage.unbound(pod))
        tracked.awaits = tuple(claim for claim, _ in claims)
        if claims:
            self._binder.provision(tracked.job, tracked.attempt, claims)
        else:
            self._binder.bind(tracked.job, tracked.attempt, places)

    def _bind_provided(self) -> None:
        """Binds gangs whose volumes have been made meanwhile; where they cannot be reached, the gang is placed anew."""
        claims = self._mirror.storage.claims
        for tracked in self.roster.tracked.values():
            if not tracked.awaits or not all(key in claims and claims[key].is_bound for key in tracked.awaits):
                continue
            tracked.awaits = ()
            places = tuple((pod, tracked.nodes[pod.metadata.key]) for pod in tracked.bundle.pods)
            tracked.nodes = {}
            self._guard.renew()
            refusal = self._guard.refusal(places)
            tracked.nodes = {pod.metadata.key: node for pod, node in places}
            self._guard.renew()
            if refusal:
                self._unbound(tracked, Bound(tracked.job, tracked.attempt, (), refusal))
            else:
                self._binder.bind(tracked.job, tracked.attempt, places)

    def _evict(self, tracked: Tracked) -> None:
        tracked.step = Step.STOPPING
        present = self.roster.present(tracked)
        kept = keeps(self._mirror.budgets.values(), self.roster.evictable(tracked))
        if kept and tracked.stop is not None:
            self._events.append(Failed(tracked.stop, kept))
            tracked.stop = None
            return
        nodes = self._mirror.nodes
        staying = tuple(pod for key, pod in present.items() if tracked.nodes.get(key) in nodes)
        gone = tuple(pod for key, pod in self.roster.there(tracked).items() if tracked.nodes.get(key) not in nodes)
        for pod in staying:
            self._reporter.preempted(pod, f"evicted with all pods of {tracked.bundle.id}: {tracked.stop_reason}")
        self._binder.evict(tracked.job, tracked.attempt, staying, gone)

    def _explain(self, engine: Engine) -> None:
        """Writes why jobs are pending, where that is another reason than was written."""
        left = EXPLAINED_MAX
        for job, tracked in self.roster.tracked.items():
            if tracked.step is not Step.PENDING or job in self._held:
                continue
            reason = engine.state.reason(job)
            if reason is None or self._told.get(job) == reason:
                continue
            if not left:
                break
            left -= 1
            self._told[job] = reason
            line = in_kubernetes(because_in(engine.state, explain(engine.state, job)), tracked.bundle)
            self._say(tracked.family, tracked.bundle.pods, line)
