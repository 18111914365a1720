"""The guard: no gang is bound where what its pods, or pods beside them, require would not hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.kube.arrange.arranger import Ground, arrange
from phalanx.kube.arrange.assumed import AssumedPlaces
from phalanx.kube.arrange.surroundings import Surroundings
from phalanx.kube.arrange.wishes import Room, wished, wishes
from phalanx.kube.gangs.arrangement import ANYHOW, Arrangement
from phalanx.kube.gangs.bundle import Bundle, places_of
from phalanx.kube.jobs.roster import Roster
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.kube.mirror import Mirror
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.budgets import keeps
from phalanx.kube.pods.neighbours import Neighbours
from phalanx.kube.pods.preferences import PodPreferences
from phalanx.kube.queues import queue_refusal
from phalanx.placement.placement import Slot
from phalanx.protocol.plan import Claim, Plan

NEVER = "it would have to evict other pods, and its preemptionPolicy is Never"
NO_LOWER = "it would have to evict pods of another scheduler whose priority is no lower"


class Guard:
    """Arranges gangs beside the pods that are placed, and looks through plans before they are carried out."""

    def __init__(self, mirror: Mirror, roster: Roster, levels: tuple[str, ...]) -> None:
        self._mirror = mirror
        self._roster = roster
        self._levels = levels
        self._surroundings = Surroundings(mirror, roster)

    def renew(self) -> None:
        """Has the pods that are placed be looked at anew: some may have come or gone."""
        self._surroundings.renew()

    def placed(self, places: Iterable[tuple[Pod, str]]) -> None:
        """Takes note of pods that are being bound."""
        self._surroundings.put(places)

    def arrange(self, bundle: Bundle, state: State) -> Bundle:
        """A bundle, arranged anew."""
        found = ANYHOW
        too_much = next(filter(None, map(self._too_much, bundle.pods)), "")
        if too_much:
            found = Arrangement(refused=too_much)
        elif refusal := queue_refusal(bundle.queue, self._mirror.queues):
            found = Arrangement(refused=refusal)
        elif self._mirror.minding:
            lack = next(filter(None, map(self._mirror.storage.lack, bundle.pods)), "")
            neighbours = self._surroundings.neighbours()
            found = (
                Arrangement(refused=lack) if lack else arrange(bundle.id, bundle.pods, self._ground(state), neighbours)
            )
        return bundle if found == bundle.arrangement else replace(bundle, arrangement=found)

    def _too_much(self, pod: Pod) -> str:
        """Why a pod is not looked at for what it, or its namespace, says; empty if it is."""
        return self._mirror.wordy.get(pod.metadata.key, "") or self._mirror.particulars.refusal(pod)

    def prefer(self, state: State) -> Iterator[Tracked]:
        """Works out anew what pending gangs prefer for the sake of other pods, and gives those that prefer others."""
        if not self._mirror.with_preferences:
            return
        preferences = self._preferences()
        pending = [each for each in self._roster.tracked.values() if each.step is Step.PENDING]
        assumed = AssumedPlaces(self._mirror.nodes, self._free(state), preferences)
        for tracked in sorted(pending, key=lambda each: -each.bundle.rank):
            if preferences.is_exhausted:
                return
            found = assumed.preferences(tracked.bundle)
            if found != tracked.bundle.preferences:
                tracked.bundle = replace(tracked.bundle, preferences=found)
                yield tracked

    def veto(self, plan: Plan) -> dict[str, str]:
        """The jobs of a plan that may not start so, with why; none if all may."""
        refused: dict[str, str] = {}
        if not self._mirror.minding:
            return self._vetoed_for_victims(plan)
        around = self._surroundings.neighbours()
        with around.tentatively():
            for claim in plan.claims:
                tracked = self._roster.tracked.get(claim.job)
                if tracked is None:
                    continue
                why = self._why_not(claim, tracked) or self._place(around, places_of(tracked.bundle, claim.placement))
                if why:
                    refused[claim.job] = why
        return refused

    def _vetoed_for_victims(self, plan: Plan) -> dict[str, str]:
        found = ((claim, self._roster.tracked.get(claim.job)) for claim in plan.claims if claim.victims)
        why_not = ((claim.job, self._why_not(claim, tracked)) for claim, tracked in found if tracked is not None)
        return {job: why for job, why in why_not if why}

    def _why_not(self, claim: Claim, tracked: Tracked) -> str:
        """Why a job may not have its victims evicted; empty if it may, or has none."""
        if claim.victims and is_never(tracked.bundle.pods):
            return NEVER
        if any(self._is_no_lower(victim, tracked.bundle.rank) for victim in claim.victims):
            return NO_LOWER
        kept = next(filter(None, map(self._kept, claim.victims)), "")
        return f"it would have to evict other pods, and {kept}" if kept else ""

    def wished(self, bundle: Bundle, attempt: AttemptRecord, state: State) -> tuple[Slot, ...]:
        """The slots of a gang that starts where its pods prefer them beside one another; none if it lies as planned.
        What is free may be reserved for another, so then it does.
        """
        if not self._mirror.with_preferences or state.reservations or not wishes(bundle, self._mirror.namespaces):
            return ()
        slots = wished(bundle, attempt, Room(state, attempt), self._mirror.nodes, self._preferences())
        pods = (pod for pod, _ in places_of(bundle, attempt.placement))
        places = tuple(zip(pods, (slot.node for slot in slots), strict=False))
        return () if slots == attempt.placement.slots or self.refusal(places) else slots

    def refusal(self, places: Iterable[tuple[Pod, str]]) -> str:
        """Why pods may not be bound to nodes, as things are now; empty if they may."""
        if not self._mirror.minding:
            return ""
        around = self._surroundings.neighbours()
        with around.tentatively():
            return self._place(around, places)

    def arrangements(self) -> Iterator[Arrangement]:
        """What nodes are labelled with, and offer, for the sake of jobs: of those that run only what they hold."""
        for tracked in self._roster.tracked.values():
            found = tracked.bundle.arrangement
            if found is not ANYHOW:
                yield found if tracked.step is Step.PENDING else replace(found, eligible=None)

    def _preferences(self) -> PodPreferences:
        """Likewise, as far as pods like or dislike to be beside them."""
        found = PodPreferences(self._mirror.nodes, self._mirror.namespaces)
        for pod, node in self._surroundings.placed():
            found.add(pod, node)
        return found

    def _is_no_lower(self, victim: str, rank: int) -> bool:
        """Whether an attempt is a pod of another scheduler whose priority is no lower than that: quotas move none."""
        tracked = self._roster.tracked.get(victim.rpartition("/")[0])
        if tracked is None or any(map(self._mirror.is_ours, tracked.bundle.pods)):
            return False
        return tracked.bundle.rank >= rank

    def _kept(self, victim: str) -> str:
        """What keeps the pods of an attempt from being evicted all at once."""
        tracked = self._roster.tracked.get(victim.rpartition("/")[0])
        return keeps(self._mirror.budgets.values(), self._roster.evictable(tracked)) if tracked is not None else ""

    def _place(self, around: Neighbours, places: Iterable[tuple[Pod, str]]) -> str:
        """Adds pods to those around, the ones that must be near others last; says what keeps the first of them off."""
        waiting = [(pod, self._mirror.nodes[name]) for pod, name in places if name in self._mirror.nodes]
        while waiting:
            left: list[tuple[Pod, KubeNode]] = []
            for pod, node in waiting:
                if around.refusal(pod, node):
                    left.append((pod, node))
                else:
                    around.add(pod, node)
            if len(left) == len(waiting):
                pod, node = left[0]
                why = around.refusal(pod, node)
                return f"pod {pod.metadata.name} may not go to node {node.metadata.name} by {why}"
            waiting = left
        return ""

    def _ground(self, state: State) -> Ground:
        names = state.topology.number
        return Ground(
            self._mirror.nodes,
            self._mirror.namespaces,
            self._levels,
            lambda: {name: state.topology.nodes[number].gpus for name, number in names.items()},
            lambda: self._free(state),
            self._surroundings.one_each,
            self._surroundings.crowds,
        )

    def _free(self, state: State) -> dict[str, int]:
        """How many GPUs each node has free: of one that the engine has not heard of yet, none."""
        free = dict.fromkeys(self._mirror.nodes, 0)
        free.update((name, state.capacity.free[number].bit_count()) for name, number in state.topology.number.items())
        return free


def is_never(pods: Iterable[Pod]) -> bool:
    """Whether some pods may not have others evicted."""
    return any(pod.spec.preemption_policy == "Never" for pod in pods)
