"""The roster: which pods belong to which job, and which of them are there."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.engine.state.state import State
from phalanx.kube.gangs.groups import Family
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.kube.mirror import Mirror, Uses
from phalanx.kube.objects.pod import Pod
from phalanx.kube.pods.demand import PODS, demand_of


class Roster:
    """The jobs that were formed, by id, by pod and by family."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self.tracked: dict[str, Tracked] = {}
        self.owner: dict[str, Tracked] = {}
        self._by_family: dict[Family, dict[str, Tracked]] = {}
        self._doomed: dict[str, str] = {}

    def add(self, tracked: Tracked) -> None:
        """Takes a job in."""
        self.tracked[tracked.job] = tracked
        self._by_family.setdefault(tracked.family, {})[tracked.job] = tracked
        for key in tracked.uids:
            self.owner[key] = tracked

    def remove(self, tracked: Tracked) -> None:
        """Forgets a job: its pods belong to none."""
        del self.tracked[tracked.job]
        family = self._by_family[tracked.family]
        del family[tracked.job]
        if not family:
            del self._by_family[tracked.family]
        for key in tracked.uids:
            if self.owner.get(key) is tracked:
                del self.owner[key]

    def stand_in(self, tracked: Tracked, pod: Pod, member: str) -> str:
        """Has a pod take the place of a member of a job, and says on which node that is."""
        self.owner.pop(member, None)
        self.owner[pod.metadata.key] = tracked
        return tracked.stand_in(pod, member)

    def of_family(self, family: Family) -> list[Tracked]:
        """The jobs of one family."""
        return list(self._by_family.get(family, {}).values())

    def steps(self) -> dict[str, int]:
        """How many jobs are how far. Any thread may ask."""
        # Taken in one step: meanwhile the loop may change it.
        there = list(self.tracked.values())
        return {step.name.lower(): sum(each.step is step for each in there) for step in Step}

    def waiting(self, state: State) -> list[str]:
        """The jobs that the engine would start if it could."""
        known = state.jobs
        pending = (each.job for each in self.tracked.values() if each.step is Step.PENDING)
        return [job for job in pending if job in known and not known[job].held]

    def levels(self) -> dict[str, None]:
        """The labels whose values jobs ask to have alike."""
        return dict.fromkeys(level for tracked in self.tracked.values() for level in tracked.bundle.levels)

    def held(self) -> dict[str, Uses]:
        """What jobs that are bound, or being bound, hold of each node, of resources that are known by name."""
        found: dict[str, dict[str, int]] = {}
        for tracked in self.tracked.values():
            takes = tracked.bundle.arrangement.takes
            for pod in tracked.bundle.pods if tracked.nodes else ():
                key = pod.metadata.key
                if key not in tracked.nodes:
                    continue
                on_node = found.setdefault(tracked.nodes[key], {})
                demand = demand_of(pod).beside(takes.get(key, ""))
                for name, amount in (*demand.others, (PODS, 1)):
                    on_node[name] = on_node.get(name, 0) + amount
        return {node: Uses(others=tuple(others.items())) for node, others in found.items()}

    def doom(self, pods: Iterable[Pod]) -> None:
        """Takes note of pods that are deleted by now, although the watch has not said so yet."""
        self._doomed.update((pod.metadata.uid, pod.metadata.key) for pod in pods)

    def pods_of(self, family: Family) -> list[Pod]:
        """The pods of a family that are there, but for those that are deleted already."""
        pods = [self._mirror.pods[key] for key in self._mirror.members(family)]
        for uid, key in list(self._doomed.items()):
            there = self._mirror.pods.get(key)
            if there is None or there.metadata.uid != uid:
                del self._doomed[uid]
        return [pod for pod in pods if pod.metadata.uid not in self._doomed]

    def is_free(self, pod: Pod) -> bool:
        """Whether a pod is pending and of no job so far, and nothing else holds it back."""
        is_taken = self._owner_of(pod) is not None or pod.spec.node_name or pod.spec.scheduling_gates
        return not (is_taken or pod.is_leaving or pod.is_over)

    def is_placed(self, pod: Pod) -> bool:
        """Whether a pod is bound and has not failed; what was bound a moment ago may not have been heard of yet."""
        owner = self._owner_of(pod)
        if pod.status.phase == "Failed" or pod.is_leaving or (owner is not None and owner.step is Step.STOPPING):
            return False
        return bool(pod.spec.node_name) or (owner is not None and owner.step is Step.BOUND)

    def node_of(self, pod: Pod) -> str:
        """The node of a pod that is placed."""
        owner = self._owner_of(pod)
        return pod.spec.node_name or (owner.nodes.get(pod.metadata.key, "") if owner is not None else "")

    def _owner_of(self, pod: Pod) -> Tracked | None:
        """The job of a pod; one with the name of a pod before it is another pod."""
        owner = self.owner.get(pod.metadata.key)
        return owner if owner is not None and owner.uids.get(pod.metadata.key) == pod.metadata.uid else None

    def there(self, tracked: Tracked) -> dict[str, Pod]:
        """The pods of a job that the API server has, also those that have ended."""
        found = {}
        for key, uid in tracked.uids.items():
            pod = self._mirror.pods.get(key)
            if pod is not None and pod.metadata.uid == uid:
                found[key] = pod
        return found

    def evictable(self, tracked: Tracked) -> tuple[Pod, ...]:
        """The pods of a job that would have to be evicted: those that have neither ended nor been asked to."""
        return tuple(pod for pod in self.present(tracked).values() if not pod.is_leaving)

    def present(self, tracked: Tracked) -> dict[str, Pod]:
        """The pods of a job that have not ended. Of one on a node that is gone no kubelet will say that it has."""
        return {
            key: pod
            for key, pod in self.there(tracked).items()
            if not pod.is_over and not (pod.is_leaving and tracked.nodes.get(key) not in self._mirror.nodes)
        }
