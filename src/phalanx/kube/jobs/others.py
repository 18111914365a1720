"""Others: pods of other schedulers that may make way, which the engine is told of as jobs of one pod that run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from phalanx.kube.engine import Engine
from phalanx.kube.gangs.bundle import Bundle, GpuTypes, RefusedError, bundle_id, running_job_of
from phalanx.kube.jobs.roster import Roster
from phalanx.kube.jobs.tracked import Step, Tracked
from phalanx.kube.mirror import Mirror
from phalanx.kube.pods.budgets import keeps_always
from phalanx.placement.fit import NODE_NAME
from phalanx.protocol.action import Action, Start
from phalanx.protocol.event import Done, JobCancelled, JobHeld, JobReleased, JobSubmitted

NO_PLACE = "it runs where there is no place for it"


class Others:
    """Adopts pods of other schedulers, and takes note of those that cannot be: they count as foreign use for good."""

    def __init__(self, mirror: Mirror, roster: Roster) -> None:
        self._mirror = mirror
        self._roster = roster
        self._left: dict[str, None] = {}

    def appeared(self) -> list[Tracked]:
        """The pods that are not known as jobs yet. From now on they are no foreign use."""
        found = []
        for key in self._mirror.others:
            pod = self._mirror.pods[key]
            node = pod.spec.node_name
            if key in self._roster.owner or pod.metadata.uid in self._left or node not in self._mirror.nodes:
                continue
            is_kept = keeps_always(self._mirror.budgets.values(), (pod,))
            tracked = Tracked(
                Bundle(bundle_id(key, (pod,)), (pod,), is_kept=is_kept), key, step=Step.BOUND, nodes={key: node}
            )
            self._roster.add(tracked)
            self._mirror.nodes_used[node] = None
            found.append(tracked)
        return found

    def adopt(self, some: Sequence[Tracked], engine: Engine, gpu_types: GpuTypes, now: int) -> list[Action]:
        """Has the engine start jobs where their pods run, while all others wait; gives back what else it decided."""
        waiting = self._roster.waiting(engine.state)
        engine.take(map(JobHeld, waiting), now)
        adopted = {tracked.job: tracked for tracked in some if _is_taken(tracked, engine, gpu_types, now)}
        actions: list[Action] = []
        for action in engine.decide(now)[0].actions:
            tracked = adopted.get(action.id.job)
            if tracked is not None and isinstance(action, Start):
                tracked.attempt = action.id.attempt
                engine.take((Done(action.id),), now)
            else:
                actions.append(action)
        for tracked in some:
            if not tracked.attempt:
                engine.take([JobCancelled(tracked.job, NO_PLACE)] if tracked.job in adopted else [], now)
                self._roster.remove(tracked)
                self.leave(tracked.uids.values())
                self._mirror.nodes_used.update(dict.fromkeys(tracked.nodes.values()))
        engine.take(map(JobReleased, waiting), now)
        return actions

    def leave(self, uids: Iterable[str]) -> None:
        """Takes note of pods that are foreign use, and stay that."""
        self._left.update(dict.fromkeys(uids))

    def is_gone_with_node(self, tracked: Tracked) -> bool:
        """Whether this is a pod of another scheduler on a node that is deleted."""
        on_nodes = any(node in self._mirror.nodes for node in tracked.nodes.values())
        return not on_nodes and not any(map(self._mirror.is_ours, tracked.bundle.pods))


def _is_taken(tracked: Tracked, engine: Engine, gpu_types: GpuTypes, now: int) -> bool:
    """Submits the job of a pod, for the node that it is on. Whether the engine takes it."""
    (node,) = tracked.nodes.values()
    try:
        job = replace(running_job_of(tracked.bundle, gpu_types), node_selector=((NODE_NAME, node),))
    except RefusedError:
        return False
    return not engine.take((JobSubmitted(job),), now)
