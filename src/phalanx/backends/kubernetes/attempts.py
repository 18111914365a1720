"""All attempts on Kubernetes: created once, followed to their end, and found again after a restart."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable

from phalanx.backends.attempts import Key, RemoteAttempts
from phalanx.backends.kubernetes.attempt import KubeAttempt, read_attempt
from phalanx.backends.kubernetes.endings import NotBegun, end_of, gone_end, mind_beginning, verdict_of
from phalanx.backends.kubernetes.leftovers import Leftovers
from phalanx.backends.kubernetes.logs import LogCollector
from phalanx.backends.kubernetes.manifests import Manifest, Owner, pod_manifest, secret_manifest, service_manifest
from phalanx.backends.kubernetes.nodes import Nodes
from phalanx.backends.kubernetes.pod import TaskPod, read_pod
from phalanx.backends.kubernetes.settings import VARIABLE
from phalanx.backends.kubernetes.site import NamespaceError, Site, for_all, passes
from phalanx.backends.kubernetes.tasks import gang_of, plans_of
from phalanx.backends.live import Adopted
from phalanx.backends.local.attempt_files import Answer, Ending, Order
from phalanx.backends.local.endings import LOST
from phalanx.backends.local.folder import STREAMS, AttemptFolder, new_state
from phalanx.backends.local.orders import OrderError, Yard, tasks_by_role
from phalanx.errors import PhalanxError
from phalanx.kube.api.errors import ApiError, UnreachableError
from phalanx.placement.placement import Placement
from phalanx.protocol.action import Start, Stop
from phalanx.protocol.event import Done, Event
from phalanx.workload.job import Job

BEGIN_PATIENCE_S = 300.0
"""How long a task may take to begin: its image may have to be pulled, its volumes attached."""

LEAVING_S = 15.0
"""How long after its grace a pod of a lost node is waited for."""

LOGS_S = 15.0
"""How long the rest of what ended tasks printed is waited for."""

log = logging.getLogger(__name__)


class ManyPodsError(PhalanxError):
    """A user has as many pods as one may; some of them end."""


class KubeAttempts(RemoteAttempts[KubeAttempt]):
    """Each is a pod a task. `arrived` is called, from any thread, when all that a task printed is here."""

    engine = "Kubernetes"

    def __init__(
        self,
        site: Site,
        yard: Yard,
        jobs: Callable[[str], Job],
        nodes: Nodes,
        arrived: Callable[[], None],
        emit: Callable[[list[Event]], None],
    ) -> None:
        super().__init__(yard, emit)
        self._site = site
        self._jobs = jobs
        self._nodes = nodes
        self._claimed = False
        self._adopted = False
        self._seen: dict[str, TaskPod] | None = None
        self._logs = LogCollector(site.client, lambda pod: site.path("pods", pod), arrived)
        self._leftovers = Leftovers(site)

    def close(self) -> None:
        """Lets another server work here."""
        self._logs.close()
        super().close()

    def claim(self) -> None:
        """Takes the namespace; raises where another server has it."""
        self._site.claim()
        self._claimed = True

    # What is asked

    def _plan(self, action: Start, now: int) -> KubeAttempt:
        job = self._jobs(action.id.job)
        attempt = self._planned(action, job, now)
        attempt.folder.make()
        for slot in action.placement.slots:
            _touch_logs(attempt.folder, slot.rank)
        attempt.folder.write_order(self._order(action, job))
        return attempt

    def _planned(self, action: Start, job: Job, now: int) -> KubeAttempt:
        owner = Owner(self._site.server, job.id, action.id.attempt)
        gang = gang_of(self._yard, owner, job, action.placement)
        settings = self._site.settings
        plans = plans_of(gang, action, settings, self._nodes, now)
        tasks = tasks_by_role(job.gang.roles)
        return KubeAttempt(
            owner,
            self._yard.folder(job.id, owner.attempt),
            action.placement.slots,
            [pod_manifest(gang, plan, settings) for plan in plans],
            action.id,
            gang.meets,
            {role: task.memory_limit_mb or task.memory_mb for role, task in tasks.items()},
            grace_ms=job.grace_ms,
            since_s=time.monotonic(),
            user=job.user,
        )

    def _order(self, action: Start, job: Job) -> Order:
        """What a restored server tells the attempt by."""
        return Order(
            job=job.id,
            attempt=action.id.attempt,
            incarnation=self._yard.history.incarnation(job.id, action.id.attempt),
            queue=job.queue,
            owner=job.user,
            term=action.id.term,
            seq=action.id.seq,
            grace_ms=job.grace_ms,
            service=False,
            probe=None,
            idle_ms=0,
            pens={},
            tasks=[],
        )

    def _stop(self, action: Stop) -> None:
        attempt = self.live.get((action.id.job, action.id.attempt))
        if attempt is None:
            self._answer_for(action)
            return
        # What has begun by now is told first.
        self._follow(attempt)
        if attempt.key not in self.live:
            self._answer_for(action)
            return
        if action.id not in attempt.stops:
            attempt.stops.append(action.id)
        before = attempt.stop_grace_ms
        attempt.stop_grace_ms = action.grace_ms if before is None else min(before, action.grace_ms)
        attempt.put_down()
        self._follow(attempt)

    # What is done for an attempt

    def look(self) -> None:
        """Brings on what could not be brought on before, and what is overdue."""
        for attempt in list(self.live.values()):
            self._push(attempt)
            if attempt.key in self.live:
                self._follow(attempt)
        self._leftovers.clear()

    def follow_leaving(self) -> None:
        """Finishes attempts of which the rest of the prints was waited for."""
        for attempt in list(self.live.values()):
            if attempt.over_s is not None:
                self._follow(attempt)

    def _push(self, attempt: KubeAttempt) -> None:
        """Creates and binds the pods of an attempt that starts, as far as the API server lets us."""
        if attempt.start is None or attempt.is_leaving or attempt.bound:
            return
        try:
            if not self._claimed:
                self.claim()
            if not attempt.created:
                self._need_few(attempt)
                self._create(attempt)
            for_all(lambda slot: self._site.bind(attempt.owner.pod_name(slot.rank), slot.node), attempt.slots)
            attempt.bound, attempt.since_s = True, time.monotonic()
            attempt.put_down()
        except UnreachableError as error:
            log.warning("job %s: %s", attempt.owner.job, error)
        except ApiError as error:
            # With its namespace the claim on it may be gone.
            self._claimed = error.status != 404
            self._give_up(attempt, f"Kubernetes refused it: {error}", passes(error))
        except PhalanxError as error:
            self._give_up(attempt, str(error), isinstance(error, NamespaceError | ManyPodsError))

    def _need_few(self, attempt: KubeAttempt) -> None:
        """Refuses pods beyond what one user may have: tasks that ask for next to nothing are bounded by no node."""
        most, wants = self._site.settings.pods_of_user_max, len(attempt.slots)
        has = sum(len(each.slots) for each in self.live.values() if each.created and each.user == attempt.user)
        if has + wants > most:
            what = f"user {attempt.user} has {has} pods on Kubernetes, and this job takes {wants} more"
            error = f"{what}: expected at most {most} at a time (pods_of_user_max in the file of {VARIABLE})"
            raise ManyPodsError(error) if wants <= most else OrderError(error)

    def _create(self, attempt: KubeAttempt) -> None:
        """Creates all of an attempt. No scheduler knows its pods, so that none runs before it is bound."""
        owner, settings = attempt.owner, self._site.settings
        placement = Placement(attempt.slots)
        gang = gang_of(self._yard, owner, self._jobs(owner.job), placement)
        self._site.create(secret_manifest(gang, settings))
        if attempt.meets:
            self._site.create(service_manifest(owner, settings))
        for_all(lambda manifest: self._create_pod(attempt, manifest), attempt.pod_manifests)
        attempt.created = True
        attempt.put_down()

    def _create_pod(self, attempt: KubeAttempt, manifest: Manifest) -> None:
        pod = read_pod(self._site.create(manifest))
        if pod.key is not None:
            attempt.pods.setdefault(pod.key[2], pod)

    def _give_up(self, attempt: KubeAttempt, reason: str, retryable: bool, node: str = "") -> None:
        """Undoes a start: it is told once no pod of it is left."""
        assert attempt.start is not None
        start = attempt.start
        attempt.failure = Answer(
            term=start.term, seq=start.seq, ok=False, reason=reason, retryable=retryable, node=node
        )
        attempt.put_down()
        self._follow(attempt)

    def _follow(self, attempt: KubeAttempt) -> None:
        """Takes on how the pods of an attempt are."""
        if self._seen is None:
            return
        self._note(attempt)
        if attempt.is_leaving:
            self._end(attempt)
        elif attempt.start is not None:
            self._mind_start(attempt)
        elif verdict := verdict_of(attempt.ends, len(attempt.slots)):
            attempt.verdict = verdict
            attempt.put_down()
            self._end(attempt)

    def _note(self, attempt: KubeAttempt) -> None:
        """Puts down which tasks have ended, and has what they print read."""
        known = len(attempt.ends)
        for rank, pod in attempt.pods.items():
            if pod.has_run:
                path = attempt.folder.log_path(rank, "out")
                self._logs.follow(pod.metadata.name, pod.metadata.uid, path, pod.is_over)
            if pod.is_over and rank not in attempt.ends:
                slot = attempt.slot(rank)
                attempt.ends[rank] = end_of(pod, slot, attempt.memory_mb.get(slot.role, 0), attempt.is_leaving)
        for rank in attempt.gone - attempt.ends.keys():
            attempt.ends[rank] = gone_end(attempt.slot(rank))
        if len(attempt.ends) > known:
            attempt.put_down()

    def _mind_start(self, attempt: KubeAttempt) -> None:
        if not attempt.bound:
            return
        late = time.monotonic() - attempt.since_s > BEGIN_PATIENCE_S
        try:
            for rank in attempt.gone:
                slot = attempt.slot(rank)
                raise NotBegun(attempt.ends[rank]["reason"], slot.node, retryable=True, at_once=True)
            for rank, pod in attempt.pods.items():
                self._mind_task(attempt, rank, pod, late)
        except NotBegun as why:
            if why.at_once or late:
                self._give_up(attempt, why.reason, why.retryable, why.node)
            return
        if len(attempt.pods) == len(attempt.slots) and all(pod.has_run for pod in attempt.pods.values()):
            self._started(attempt)

    def _mind_task(self, attempt: KubeAttempt, rank: int, pod: TaskPod, late: bool) -> None:
        container = next(each for each in attempt.pod_manifests if each["metadata"]["name"] == pod.metadata.name)
        (task,) = container["spec"]["containers"]
        slot = attempt.slot(rank)
        mind_beginning(pod, slot, task["image"], (task.get("command") or [task["image"]])[0])
        if late and not pod.has_run:
            why = f"task {rank} on {slot.node} did not begin within {BEGIN_PATIENCE_S:g} s: {_conditions(pod)}"
            raise NotBegun(why, slot.node, retryable=True, at_once=True)

    def _started(self, attempt: KubeAttempt) -> None:
        assert attempt.start is not None
        start, attempt.start = attempt.start, None
        answer = Answer(term=start.term, seq=start.seq, ok=True, reason="", retryable=True, node="")
        state = attempt.folder.state() or new_state()
        attempt.folder.write_state({**state, "phase": "running", "answers": [*state["answers"], answer]})
        attempt.put_down()
        self._emit(Done(start))
        self._follow(attempt)

    def _end(self, attempt: KubeAttempt) -> None:
        """Has the pods of an attempt end, and finishes it once none uses anything."""
        try:
            if not self._resolve(attempt):
                return
            for rank, pod in list(attempt.pods.items()):
                if not attempt.is_over(rank):
                    self._end_pod(attempt, rank, pod)
        except UnreachableError as error:
            log.warning("job %s: %s", attempt.owner.job, error)
            return
        except ApiError as error:
            log.warning("job %s: a pod cannot be deleted: %s", attempt.owner.job, error)
            return
        self._note(attempt)
        if all(attempt.is_over(slot.rank) for slot in attempt.slots) and self._has_logs(attempt):
            self._finish(attempt)

    def _resolve(self, attempt: KubeAttempt) -> bool:
        """Finds out about pods of which nothing was heard: whether they are known by now."""
        for slot in attempt.slots:
            if slot.rank not in attempt.pods and slot.rank not in attempt.gone:
                pod = self._site.pod(attempt.owner.pod_name(slot.rank))
                if pod is not None and pod.key == (*attempt.key, slot.rank):
                    attempt.pods[slot.rank] = pod
                else:
                    attempt.gone.add(slot.rank)
        return True

    def _end_pod(self, attempt: KubeAttempt, rank: int, pod: TaskPod) -> None:
        """Asks for the end of a pod once, again with less grace, and without its kubelet where that is lost."""
        now_s = time.monotonic()
        grace_ms = attempt.leaving_grace_ms
        until_s = now_s + grace_ms / 1000
        asked_s = attempt.until_s.get(rank)
        name, uid = pod.metadata.name, pod.metadata.uid
        if not pod.spec.node_name and not attempt.bound:
            # Read anew: it may have been bound just before.
            fresh = self._site.pod(name)
            if fresh is None or not fresh.spec.node_name:
                self._site.delete_pod(name, uid, 0)
                attempt.gone.add(rank)
                return
        if asked_s is None or until_s < asked_s - 1:
            # With 0 the API server would forget the pod at once, and its processes might run on.
            self._site.delete_pod(name, uid, max(-(-grace_ms // 1000), 1))
            attempt.until_s[rank] = until_s
        elif now_s > asked_s + LEAVING_S and not self._nodes.is_ready(attempt.slot(rank).node):
            self._site.delete_pod(name, uid, 0)
            attempt.gone.add(rank)

    def _has_logs(self, attempt: KubeAttempt) -> bool:
        """Whether all that its tasks printed is here, or is waited for no more."""
        if attempt.over_s is None:
            attempt.over_s = time.monotonic()
        if time.monotonic() - attempt.over_s > LOGS_S:
            return True
        return all(self._logs.has_all(pod.metadata.uid) for pod in attempt.pods.values())

    def _finish(self, attempt: KubeAttempt) -> None:
        """Puts down and tells how an attempt ended."""
        answers, ending = [], attempt.verdict
        if attempt.start is not None:
            why = attempt.failure or Answer(
                term=attempt.start.term,
                seq=attempt.start.seq,
                ok=False,
                reason="stopped while it was starting",
                retryable=True,
                node="",
            )
            answers.append(why)
            ending = Ending(outcome="unstarted", exit_code=0, reason=why["reason"])
        self._close(attempt, answers, ending or LOST, attempt.adopted)

    def _forget(self, attempt: KubeAttempt) -> None:
        super()._forget(attempt)
        for pod in attempt.pods.values():
            self._logs.forget(pod.metadata.uid)
            self._leftovers.add_pod(pod)
        self._leftovers.add_objects(attempt.owner, attempt.meets)
        self._leftovers.clear()

    # What Kubernetes tells

    def take_pods(self, pods: Iterable[TaskPod]) -> None:
        """All pods of this server that there are: of the others, those that were known to be there are gone."""
        found = self._seen = {pod.metadata.uid: pod for pod in pods}
        for attempt in self.live.values():
            for rank, pod in list(attempt.pods.items()):
                if pod.metadata.uid not in found and self._is_gone(attempt, rank):
                    attempt.gone.add(rank)
        for pod in found.values():
            self._take(pod, False)
        for attempt in list(self.live.values()):
            self._expect_all(attempt, found.values())
            self._follow(attempt)

    def take_pod(self, pod: TaskPod, gone: bool) -> None:
        """A pod that is new, has changed, or is gone."""
        if self._seen is not None:
            self._seen[pod.metadata.uid] = pod
            if gone:
                del self._seen[pod.metadata.uid]
        self._take(pod, gone)
        attempt = self.live.get(pod.key[:2]) if pod.key is not None else None
        if attempt is not None:
            self._follow(attempt)

    def _take(self, pod: TaskPod, gone: bool) -> None:
        key = pod.key
        attempt = self.live.get(key[:2]) if key is not None else None
        if attempt is None or key is None or key[2] not in {slot.rank for slot in attempt.slots}:
            if not gone and self._is_strange(key):
                self._leftovers.add_pod(pod)
            return
        known = attempt.pods.get(key[2])
        if known is not None and known.metadata.uid != pod.metadata.uid:
            return
        attempt.pods[key[2]] = pod
        if gone:
            attempt.gone.add(key[2])

    def _is_gone(self, attempt: KubeAttempt, rank: int) -> bool:
        """A list may be older than the pod: it is asked for by name."""
        try:
            pod = self._site.pod(attempt.owner.pod_name(rank))
        except ApiError:
            return False
        return pod is None or pod.metadata.uid != attempt.pods[rank].metadata.uid

    def _expect_all(self, attempt: KubeAttempt, pods: Iterable[TaskPod]) -> None:
        """After a restart: pods that were created and are not there any more have been deleted meanwhile."""
        there = {pod.key[2] for pod in pods if pod.key is not None and pod.key[:2] == attempt.key}
        if attempt.created:
            attempt.gone |= {
                slot.rank for slot in attempt.slots if slot.rank not in there and slot.rank not in attempt.pods
            }

    def _is_strange(self, key: tuple[str, int, int] | None) -> bool:
        """Whether a pod belongs to no attempt. Before the takeover that is unknown."""
        return self._adopted and (key is None or key[:2] not in self.live)

    # What is taken over

    def adopt(self, attempts: Iterable[Adopted], now: int) -> None:
        """Takes over what runs, tells what has ended, and ends what belongs to no known attempt."""
        super().adopt(attempts, now)
        self._adopted = True
        for pod in (self._seen or {}).values():
            self._take(pod, False)
        self._leftovers.seek(lambda job, number: (job, number) in self.live)

    def _read(self, key: Key) -> KubeAttempt | None:
        return read_attempt(*key, self._yard.folder(*key))

    def _take_up(self, attempt: KubeAttempt) -> None:
        attempt.since_s, attempt.adopted = time.monotonic(), True
        if self._seen is not None:
            for pod in self._seen.values():
                if pod.key is not None and pod.key[:2] == attempt.key:
                    self._take(pod, False)
            self._expect_all(attempt, self._seen.values())

    def _end_unknown(self, attempt: KubeAttempt, grace_ms: int) -> None:
        attempt.stop_grace_ms = grace_ms
        self._take_up(attempt)

    def _look_again(self) -> None:
        self.take_pods(self._site.pods())


def _touch_logs(folder: AttemptFolder, rank: int) -> None:
    """Makes the files that a task's prints go to: one that has printed nothing has empty ones."""
    for stream in STREAMS:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(folder.log_path(rank, stream), flags, 0o600))


def _conditions(pod: TaskPod) -> str:
    """What a pod says of itself that does not begin."""
    waiting = pod.state.waiting
    if waiting is not None:
        return f"{waiting.reason} {waiting.message}".strip()
    told = [each for each in pod.status.conditions or () if each.status == "False"]
    return "; ".join(f"{each.type}: {each.reason} {each.message}".strip() for each in told) or "its kubelet is silent"
