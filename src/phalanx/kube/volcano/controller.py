"""The controller: watches jobs and their pods, and has each job be what its spec and its policies say.

Nothing is kept here that the API server does not have: one that starts again lists, compares, and goes on.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ApiError, ConflictError, InvalidError, NotFoundError
from phalanx.kube.api.events import post_event
from phalanx.kube.api.reflector import Broken, Changed, Listed, News, Reflector
from phalanx.kube.volcano.job import JOB_NAME, JobStatus, VolcanoJob, Worker
from phalanx.kube.volcano.lifecycle import Step, refused, step
from phalanx.kube.volcano.manifests import API_VERSION, Manifest, group_of, pod_of
from phalanx.kube.volcano.plugins.plugin import Arguments, Plugin
from phalanx.kube.volcano.plugins.registry import PLUGINS
from phalanx.kube.volcano.refusal import refusal_of

JOBS, PODS = "volcano jobs", "pods of volcano jobs"
PATH = f"/apis/{API_VERSION}/jobs"
GROUP_VERSION = "scheduling.volcano.sh/v1beta1"
WORKERS = 4
IDLE_S = 5.0
RETRY_S = 2.0
TAKEN_RETRY_S = 10.0
UNUSABLE = (TypeError, ValueError, AttributeError, LookupError, OSError, subprocess.SubprocessError)
"""How a job fails whose template is none, and a key that cannot be made."""

PLURALS = {
    "PodGroup": "podgroups",
    "Service": "services",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "NetworkPolicy": "networkpolicies",
}


class TakenError(ValueError):
    """What a job would have made is there, and is of another."""


class Close:
    """Ends the controller."""


class Controller:
    """Runs in a thread of its own from `start` to `close`. `scheduler` is the schedulerName of jobs that name none."""

    def __init__(self, client: Client, scheduler: str) -> None:
        self._client = client
        self._scheduler = scheduler
        self._inbox: queue.SimpleQueue[News | Close] = queue.SimpleQueue()
        self._jobs: dict[str, VolcanoJob] = {}
        self._pods: dict[str, dict[str, Worker]] = {}
        self._deleted: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._due: dict[str, float] = {}
        self._made: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="volcano")
        self._thread: threading.Thread | None = None
        self._reflectors = (
            Reflector(client, JOBS, PATH, VolcanoJob, self._inbox.put),
            Reflector(client, PODS, "/api/v1/pods", Worker, self._inbox.put, {"labelSelector": JOB_NAME}),
        )

    def start(self, may: Callable[[], bool], fail: Callable[[Broken], None]) -> None:
        """Begins to list and watch, and to write while it `may`. `fail` hears of what cannot be done without."""
        for reflector in self._reflectors:
            reflector.start()
        self._thread = threading.Thread(target=self._run, args=(may, fail), name="volcano jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it, after what it does just now."""
        if self._thread is None:
            return
        self._inbox.put(Close())
        self._thread.join()
        for reflector in self._reflectors:
            reflector.close()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, may: Callable[[], bool], fail: Callable[[Broken], None]) -> None:
        while True:
            for news in self._received():
                match news:
                    case Close():
                        return
                    case Broken():
                        fail(news)
                        return
                    case _:
                        self._take(news)
            if len(self._listed) == len(self._reflectors) and may():
                self._work()

    def _received(self) -> Iterator[News | Close]:
        """What has come, or comes before something is due."""
        try:
            yield self._inbox.get(timeout=self._wait_s())
            while True:
                yield self._inbox.get_nowait()
        except queue.Empty:
            return

    def _wait_s(self) -> float:
        if not self._due:
            return IDLE_S
        return min(max(min(self._due.values()) - time.monotonic(), 0.0), IDLE_S)

    def _take(self, news: Listed[Any] | Changed[Any]) -> None:
        if isinstance(news, Listed):
            self._listed[news.kind] = None
            there = {each.metadata.key for each in news.objects}
            known = self._jobs.values() if news.kind == JOBS else _all(self._pods)
            for old in [each for each in known if each.metadata.key not in there]:
                self._put(old, gone=True)
        for each in news.objects if isinstance(news, Listed) else (news.object,):
            self._put(each, gone=isinstance(news, Changed) and news.gone)

    def _put(self, it: VolcanoJob | Worker, gone: bool) -> None:
        key = it.metadata.key
        if isinstance(it, Worker):
            job = f"{it.metadata.namespace}/{(it.metadata.labels or {}).get(JOB_NAME, '')}"
            pods = self._pods.setdefault(job, {})
            if gone:
                pods.pop(key, None)
                self._deleted.pop(it.metadata.uid, None)
            else:
                pods[key] = it
            self._due[job] = 0.0
        elif gone:
            self._jobs.pop(key, None)
            self._made.pop(it.metadata.uid, None)
        elif not _is_older(it, self._jobs.get(key)):
            self._jobs[key] = it
            self._due[key] = 0.0

    def _work(self) -> None:
        """Looks at every job that is due."""
        now = time.monotonic()
        for key in [key for key, at in self._due.items() if at <= now]:
            del self._due[key]
            job = self._jobs.get(key)
            if job is None or job.metadata.deletion_timestamp is not None:
                continue
            try:
                self._look_at(job)
            except ConflictError:
                # It is another one by now, of which the watch will tell.
                continue
            except TakenError as error:
                said = f"job {job.metadata.name} cannot be run: {error}"
                post_event(self._client, _reference(), job.metadata, "Warning", "FailedSync", said)
                self._due[key] = time.monotonic() + TAKEN_RETRY_S
            except UNUSABLE as error:
                # It is looked at again when it is another.
                said = f"job {job.metadata.name} cannot be run: {type(error).__name__}: {error}"
                post_event(self._client, _reference(), job.metadata, "Warning", "FailedSync", said)
            except ApiError as error:
                post_event(self._client, _reference(), job.metadata, "Warning", "FailedSync", str(error))
                self._due[key] = time.monotonic() + RETRY_S

    def _look_at(self, job: VolcanoJob) -> None:
        why = refusal_of(job)
        if why:
            self._write(job, refused(job, why, datetime.now(UTC)))
            return
        pods = [self._as_is(pod) for pod in self._workers(job)]
        now = datetime.now(UTC)
        next_step = step(job, pods, now)
        job = self._write(job, next_step.status)
        for pod in next_step.delete:
            self._delete(pod)
        self._create(job, next_step)
        if next_step.expires is not None:
            self._expire(job, (next_step.expires - now).total_seconds())

    def _workers(self, job: VolcanoJob) -> Iterator[Worker]:
        """The pods of a job, and not of another one before it that had its name."""
        for pod in self._pods.get(job.metadata.key, {}).values():
            if any(owner.uid == job.metadata.uid for owner in pod.metadata.owner_references or ()):
                yield pod

    def _as_is(self, pod: Worker) -> Worker:
        """A pod as it is by now: one that was deleted leaves, although the watch has not said so yet."""
        if pod.metadata.uid not in self._deleted or pod.is_leaving:
            return pod
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="now")
        return msgspec.structs.replace(pod, metadata=metadata)

    def _write(self, job: VolcanoJob, status: JobStatus) -> VolcanoJob:
        """Writes a status where it is another, unless the job was changed since it was read."""
        if status == job.status:
            return job
        changes = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": job.metadata.resource_version},
            {"op": "add", "path": "/status", "value": status},
        ]
        target = f"{_path(job)}/status"
        job_now = msgspec.json.decode(self._client.patch(target, changes, "json-patch"), type=VolcanoJob)
        self._jobs[job.metadata.key] = job_now
        if status.state.phase != job.status.state.phase or status.state.message != job.status.state.message:
            said = f"{status.state.phase}: {status.state.message}" if status.state.message else status.state.phase
            kind = "Warning" if status.state.reason or status.state.phase == "Failed" else "Normal"
            reason = status.state.reason or status.state.phase
            self._pool.submit(post_event, self._client, _reference(), job.metadata, kind, reason, said)
        return job_now

    def _delete(self, pod: Worker) -> None:
        self._deleted[pod.metadata.uid] = None
        path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
        try:
            self._client.delete(path, {"preconditions": {"uid": pod.metadata.uid}})
        except (NotFoundError, ConflictError):
            return
        except ApiError:
            del self._deleted[pod.metadata.uid]
            raise

    def _create(self, job: VolcanoJob, next_step: Step) -> None:
        """Makes what a job needs and has not, its pods last."""
        if next_step.create and self._made.get(job.metadata.uid) != job.metadata.generation:
            for each in (group_of(job, GROUP_VERSION), *_of_plugins(job)):
                self._apply(each)
            self._made[job.metadata.uid] = job.metadata.generation
        path = f"/api/v1/namespaces/{job.metadata.namespace}/pods"

        def create(pod: Manifest) -> None:
            try:
                made = msgspec.json.decode(self._client.post(path, pod), type=Worker)
            except ConflictError:
                # It was made before the watch told of it, or one of that name still leaves.
                return
            self._inbox.put(Changed(PODS, made))

        pods = [pod_of(job, task, index, self._scheduler) for task, index in next_step.create]
        for pod in pods:
            for plugin, arguments in _plugins(job):
                plugin.change(pod, job, arguments)
        list(self._pool.map(create, pods))

    def _apply(self, manifest: Manifest) -> None:
        """Makes an object, or has one of the job that is there be like it. What is secret stays as it was made."""
        version, kind, metadata = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        prefix = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        path = f"{prefix}/namespaces/{metadata['namespace']}/{PLURALS[kind]}"
        try:
            self._client.post(path, manifest)
        except ConflictError:
            if kind != "Secret":
                self._check_owner(kind, f"{path}/{metadata['name']}", metadata)
                self._client.patch(f"{path}/{metadata['name']}", manifest, "merge-patch")

    def _check_owner(self, kind: str, path: str, metadata: Manifest) -> None:
        """Raises TakenError for an object of another owner: whoever may create jobs may not change any by its name.
        What was made for a job of this name before, and is not deleted yet, is not of another.
        """
        owner = metadata["ownerReferences"][0]
        tests = [
            {"op": "test", "path": f"/metadata/ownerReferences/0/{field}", "value": owner[field]}
            for field in ("apiVersion", "kind", "name")
        ]
        try:
            # What only tests changes nothing, and takes no right to read.
            self._client.patch(path, tests, "json-patch")
        except InvalidError as error:
            said = f"{kind} {metadata['namespace']}/{metadata['name']} is there and not of this job"
            raise TakenError(f"{said}: give the job another name, or delete that") from error

    def _expire(self, job: VolcanoJob, left_s: float) -> None:
        if left_s > 0:
            self._due[job.metadata.key] = time.monotonic() + left_s
            return
        options = {"preconditions": {"uid": job.metadata.uid}, "propagationPolicy": "Background"}
        try:
            self._client.delete(_path(job), options)
        except NotFoundError:
            return


def _all(pods: dict[str, dict[str, Worker]]) -> Iterator[Worker]:
    for of_job in pods.values():
        yield from of_job.values()


def _is_older(job: VolcanoJob, than: VolcanoJob | None) -> bool:
    """Whether the watch tells of a job as it was before it was written here."""
    if than is None or than.metadata.uid != job.metadata.uid:
        return False
    return int(job.metadata.resource_version) < int(than.metadata.resource_version)


def _plugins(job: VolcanoJob) -> list[tuple[Plugin, Arguments]]:
    return [(PLUGINS[name], tuple(said or ())) for name, said in sorted((job.spec.plugins or {}).items())]


def _of_plugins(job: VolcanoJob) -> list[Manifest]:
    return [each for plugin, arguments in _plugins(job) for each in plugin.objects(job, arguments)]


def _reference() -> dict[str, str]:
    return {"apiVersion": API_VERSION, "kind": "Job"}


def _path(job: VolcanoJob) -> str:
    return f"/apis/{API_VERSION}/namespaces/{job.metadata.namespace}/jobs/{job.metadata.name}"
