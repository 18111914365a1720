"""A scheduler on the cluster of the tests, and what the API server says of its pods."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from kube_cluster import KubeCluster, wait_for
from kube_objects import group, pod
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import ConflictError, ForbiddenError
from phalanx.kube.api.reflector import Page
from phalanx.kube.objects.pod import Pod
from phalanx.kube.run import Run
from phalanx.kube.settings import Settings
from phalanx.kube.volcano.controller import Controller

POD_PATH = "/api/v1/namespaces/default/pods"


@contextmanager
def scheduling(
    cluster: KubeCluster,
    volcano_jobs: bool = False,
    preempt_others_below: int | None = None,
    client: Client | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Run]:
    """A scheduler that runs meanwhile, in a thread, with what makes the pods of Volcano's Jobs if that is asked for. It
    may do what the manifests among the examples allow, unless its client says otherwise. `say` hears what it tells.
    """
    failures: list[BaseException] = []
    with client or cluster.scheduler_client() as client:
        run = Run(
            client,
            Settings(preempt_others_below=preempt_others_below),
            jobs=Controller(client, "phalanx") if volcano_jobs else None,
            say=say,
        )
        ready = threading.Event()

        def work() -> None:
            try:
                run.run(ready.set)
            except BaseException as error:
                failures.append(error)
                ready.set()

        thread = threading.Thread(target=work)
        thread.start()
        ready.wait(20)
        try:
            yield run
        finally:
            run.close()
            thread.join(20)
    if failures:
        raise failures[0]


def pods(api: Client) -> dict[str, Pod]:
    found = (msgspec.json.decode(raw, type=Pod) for raw in api.get(POD_PATH, Page).items or ())
    return {each.metadata.name: each for each in found}


def nodes_of(api: Client) -> dict[str, str]:
    return {name: each.spec.node_name for name, each in pods(api).items() if each.spec.node_name}


def reason(api: Client, name: str) -> str:
    """What the condition PodScheduled of a pod says."""
    for condition in pods(api)[name].status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def events(api: Client, name: str) -> list[str]:
    found: Any = api.get("/api/v1/namespaces/default/events", dict[str, Any])
    return [each["message"] for each in found["items"] if each["involvedObject"]["name"] == name]


def gang(name: str, count: int, gpus: int = 8, **spec: Any) -> list[dict[str, Any]]:
    return [group(name, count), *(pod(f"{name}-{i}", gpus, name, **spec) for i in range(count))]


def phalanx(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "phalanx", *arguments], check=check, capture_output=True, timeout=60, env=ENV
    )


ENV = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}


@contextmanager
def verb(cluster: KubeCluster, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`phalanx kube` as a process, which is killed in the end. It reads its standard error as bytes."""
    command = [sys.executable, "-m", "phalanx", "kube", "--kubeconfig", str(cluster.kubeconfig), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=ENV)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def create_priority(api: Client, name: str, value: int, **fields: Any) -> None:
    """A PriorityClass, which stays for the tests after this one. Admission knows of it a moment later."""
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }
    with suppress(ConflictError):
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)

    def is_known() -> bool:
        try:
            api.post(POD_PATH, pod("any", priorityClassName=name), dryRun="All")
        except ForbiddenError:
            return False
        return True

    wait_for(f"PriorityClass {name} is known", is_known)
