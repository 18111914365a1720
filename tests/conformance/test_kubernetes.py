"""What is particular to Kubernetes: quotas, other owners of pods and nodes, and two servers on one namespace."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_subject import KubernetesSubject, control_plane, opened
from programs import COMMANDS, Program
from rig import Rig

from builders import a_job
from phalanx.backends.kubernetes import attempts
from phalanx.backends.kubernetes.manifests import Owner
from phalanx.backends.kubernetes.site import NamespaceTakenError, server_name
from phalanx.backends.local.logs.files import logs_in
from phalanx.cluster.cluster import Health
from phalanx.engine.state.records import JobState
from phalanx.placement.placement import Placement, Slot
from phalanx.protocol.action import ActionId, Start
from phalanx.protocol.event import Done, Event, Failed, ForeignUse, NodeHealthChanged

pytestmark = pytest.mark.needs("kubernetes")

EXAMPLES = Path(__file__).parents[2] / "examples" / "kubernetes"
START = ActionId(1, "a", 1, 0)
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []}}
"""What is put to let a namespace go once nothing is in it."""


@pytest.fixture
def pods() -> Iterator[KubernetesSubject]:
    made = KubernetesSubject()
    yield made
    made.close()


@pytest.fixture
def rig(pods: KubernetesSubject) -> Rig:
    return Rig(pods)


@pytest.fixture
def apart(pods: KubernetesSubject) -> Rig:
    return Rig(pods, apart=True)


def start(rig: Rig, count: int = 1, program: Program = Program.FOREVER, image: str = "") -> Event:
    """Starts job `a` without the engine; the answer."""
    job = rig.subject.job(a_job("a", 1, (1, 8), grace_ms=3_000), program)
    if image:
        rig.subject.jobs["a"] = replace(job, execution=replace(job.execution, image=image))  # type: ignore[attr-defined]
    slots = tuple(Slot(rank, "worker", f"n{rank % 2}", (rank,)) for rank in range(count))
    return rig.ask(Start(START, Placement(slots)))


def post(pods: KubernetesSubject, path: str, body: dict[str, Any]) -> None:
    with pods.plane.client() as api:
        api.post(path.format(namespace=pods.namespace), body)


def pod_path(pods: KubernetesSubject, job: str, rank: int = 0, attempt: int = 1) -> str:
    name = Owner(server_name(pods.yard.backend), job, attempt).pod_name(rank)
    return f"/api/v1/namespaces/{pods.namespace}/pods/{name}"


def quota(pods: KubernetesSubject, most: int) -> None:
    """A quota as its controller would have filled it in: there is none here."""
    path = f"/api/v1/namespaces/{pods.namespace}/resourcequotas"
    post(pods, path, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": str(most)}}})
    with pods.plane.client() as api:
        status = {"hard": {"pods": str(most)}, "used": {"pods": "0"}}
        api.patch(f"{path}/few/status", {"status": status}, "merge-patch")


def test_of_a_gang_that_a_quota_refuses_no_task_runs(rig: Rig, pods: KubernetesSubject) -> None:
    quota(pods, 2)
    answer = start(rig, 3)
    assert isinstance(answer, Failed)
    assert answer.retryable
    assert "exceeded quota: few" in answer.reason
    rig.until(lambda: not any(pods.left().values()))
    assert not (pods.data / "jobs/a/1/0.out").read_bytes()


def test_beyond_the_pods_that_one_user_may_have_a_job_waits_and_a_larger_one_fails(pods: KubernetesSubject) -> None:
    pods.pods_of_user_max = 2
    rig = Rig(pods)
    rig.run("a", Program.FOREVER, gpus=0, count=2)
    rig.submit("b", Program.FOREVER, gpus=0)
    rig.until(lambda: any(isinstance(event, Failed) for event in rig.seen))
    (refused,) = (event for event in rig.seen if isinstance(event, Failed))
    assert "has 2 pods on Kubernetes, and this job takes 1 more: expected at most 2" in refused.reason
    assert rig.record("b").state is JobState.WAITING
    rig.submit("c", Program.FOREVER, gpus=0, count=3)
    assert rig.finish("c").final is JobState.FAILED
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
    rig.until(rig.is_in("b", JobState.RUNNING))
    rig.cancel("b")
    assert rig.finish("b").final is JobState.CANCELLED


def test_an_image_that_is_not_there_fails_the_job_with_its_name(rig: Rig) -> None:
    answer = start(rig, image="registry.example/no-such:1")
    assert isinstance(answer, Failed)
    assert not answer.retryable
    assert "image 'registry.example/no-such:1': ErrImagePull" in answer.reason
    assert answer.node == "n0"


def test_a_pod_that_is_deleted_by_another_is_a_loss_and_is_made_up_for(rig: Rig, pods: KubernetesSubject) -> None:
    rig.run("a", Program.FOREVER, count=2)
    with pods.plane.client() as api:
        api.delete(pod_path(pods, "a", 1), {"gracePeriodSeconds": 1})
    rig.until(lambda: rig.record("a").attempts == 2 and rig.record("a").state is JobState.RUNNING)
    assert "deleted, not by phalanx" in rig.endings("a")[0].reason
    assert pods.living("a") == 2


def test_a_namespace_that_is_deleted_takes_the_attempt_and_the_next_one_waits_for_it(
    rig: Rig, pods: KubernetesSubject
) -> None:
    def why() -> str:
        return "; ".join(each.reason for each in rig.seen if isinstance(each, Failed) and each.retryable)

    rig.run("a", Program.FOREVER)
    namespace = f"/api/v1/namespaces/{pods.namespace}"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{pods.namespace}/leases"
    with pods.plane.client() as api:
        api.delete(namespace)
        # What its controller does of it; there is none here.
        api.delete(pod_path(pods, "a"), {"gracePeriodSeconds": 1})
        rig.until(lambda: bool(rig.endings("a")))
        assert rig.endings("a")[0].cause == "lost"
        rig.until(lambda: "being terminated" in why())
        for kind in (f"{namespace}/pods", f"{namespace}/secrets", lease):
            api.delete(kind)
        api.ask(
            "PUT", f"{namespace}/finalize", json.dumps({**NAMESPACE, "metadata": {"name": pods.namespace}}).encode()
        )
        rig.until(lambda: f"kubectl create namespace {pods.namespace}" in why())
        assert rig.record("a").final is None
        api.post("/api/v1/namespaces", {"metadata": {"name": pods.namespace}})
    rig.until(rig.is_in("a", JobState.RUNNING))
    rig.until(lambda: pods.living("a") == 1)


def test_an_evicted_pod_is_told_with_the_reason_of_its_node(
    rig: Rig, pods: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Here it runs on, and its prints have no end.
    monkeypatch.setattr(attempts, "LOGS_S", 0.5)
    rig.run("a", Program.FOREVER)
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    with pods.plane.client() as api:
        api.patch(f"{pod_path(pods, 'a')}/status", {"status": status})
    rig.until(lambda: bool(rig.endings("a")))
    assert rig.endings("a")[0].reason.endswith("Evicted: The node was low on resource: memory.")
    assert rig.endings("a")[0].cause == "lost"


def test_a_node_that_is_silent_is_suspect_then_failed_and_comes_back(rig: Rig, pods: KubernetesSubject) -> None:
    def say(status: str) -> None:
        condition = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown" if status != "True" else "Ready"}
        with pods.plane.client() as api:
            api.patch("/api/v1/nodes/n1/status", {"status": {"conditions": [condition]}})

    def told() -> list[Health]:
        return [each.health for each in rig.seen if isinstance(each, NodeHealthChanged) and each.node == "n1"]

    nodes = rig.line.inner._nodes  # type: ignore[attr-defined]
    nodes._lost_after_s = 0.3
    rig.run("a", Program.FOREVER, gpus=4, count=2)
    try:
        say("Unknown")
        rig.until(lambda: told() == [Health.SUSPECT, Health.FAILED])
    finally:
        say("True")
    rig.until(lambda: told()[-1] is Health.HEALTHY)
    rig.until(rig.is_in("a", JobState.RUNNING))


def test_what_other_pods_hold_of_a_node_is_told_and_given_back(rig: Rig, pods: KubernetesSubject) -> None:
    resources = {"requests": {"cpu": "3", "memory": "2Gi"}}
    spec = {"nodeName": "n0", "containers": [{"name": "other", "image": "x", "resources": resources}]}
    path = f"/api/v1/namespaces/{pods.namespace}/pods"
    post(pods, path, {"metadata": {"name": "other"}, "spec": spec})
    rig.until(lambda: ForeignUse("n0", cpus_milli=3000, memory_mb=2048) in rig.seen)
    with pods.plane.client() as api:
        api.delete(f"{path}/other", {"gracePeriodSeconds": 0})
    rig.until(lambda: rig.seen[-1] == ForeignUse("n0"))


def test_a_second_server_on_a_namespace_is_refused_with_the_first_named(
    rig: Rig, pods: KubernetesSubject, tmp_path: Path
) -> None:
    with pytest.raises(NamespaceTakenError, match=server_name(pods.yard.backend)):
        opened(tmp_path, {}, str(control_plane().kubeconfig), pods.namespace)


def test_the_rights_among_the_examples_are_enough(pods: KubernetesSubject, tmp_path: Path) -> None:
    give_rights(pods)
    pods.plane.write_kubeconfig(tmp_path / "kubeconfig", "weak")
    pods.kubeconfig = tmp_path / "kubeconfig"
    rig = Rig(pods)
    rig.submit("a", Program.SHORT, count=2)
    assert rig.finish("a").final is JobState.SUCCEEDED, rig.record("a").end_reason
    rig.until(lambda: not any(pods.left().values()))


def give_rights(pods: KubernetesSubject) -> None:
    """Gives those of the examples to a user of the tests, in the namespace of the case."""
    api_group, user = "rbac.authorization.k8s.io", {"kind": "User", "name": "weak"}
    for each in yaml.safe_load_all((EXAMPLES / "backend.yaml").read_text()):
        if each["apiVersion"] == "v1":
            continue
        name = each["metadata"]["name"] = f"{each['metadata']['name']}-{pods.namespace}"
        is_in_namespace = each["metadata"].pop("namespace", None) is not None
        if "roleRef" in each:
            each["roleRef"]["name"], each["subjects"] = name, [{**user, "apiGroup": api_group}]
        where = f"namespaces/{pods.namespace}/" if is_in_namespace else ""
        post(pods, f"/apis/{api_group}/v1/{where}{each['kind'].lower()}s", each)


def test_ends_while_the_server_was_down_are_told_with_what_was_printed(
    apart: Rig, pods: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, Program.SHORT, ("sh", "-c", "sleep 1; echo the last word"))
    apart.run("a", Program.SHORT)
    pods.crash()
    while pods.living("a"):
        pods.wait(None)
    apart.restart()
    assert apart.finish("a").final is JobState.SUCCEEDED
    logs = {log.stream: log.piece(0, 100) for log in logs_in(pods.data / "jobs/a/1", threading.Event())}
    assert logs == {"out": b"the last word\n", "err": b""}


def test_secrets_reach_the_task_and_go_with_it(
    rig: Rig, pods: KubernetesSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "gang_of", with_secret(attempts.gang_of))
    monkeypatch.setitem(COMMANDS, Program.SUCCEED, ("sh", "-c", 'echo "$HF_TOKEN"'))
    rig.submit("a", Program.SUCCEED)
    assert rig.finish("a").final is JobState.SUCCEEDED
    (log,) = [log for log in logs_in(pods.data / "jobs/a/1", threading.Event()) if log.stream == "out"]
    assert log.piece(0, 100) == b"geheim\n"
    rig.until(lambda: not any(pods.left().values()))
    assert "geheim" not in (pods.data / "jobs/a/1/kubernetes.json").read_text()


def with_secret(made: Any) -> Any:
    """A gang that has a secret."""
    return lambda *of: replace(made(*of), secret={"HF_TOKEN": "geheim"})


def test_a_pod_of_which_the_name_is_taken_by_another_is_left_alone(rig: Rig, pods: KubernetesSubject) -> None:
    pods.sabotage("a", 0)
    answer = start(rig)
    assert isinstance(answer, Failed)
    assert "not of this server" in answer.reason
    with pods.plane.client() as api:
        api.ask("GET", pod_path(pods, "a"))


def test_a_start_waits_for_an_api_server_that_does_not_answer(rig: Rig, pods: KubernetesSubject) -> None:
    plane = pods.plane
    rig.run("b", Program.FOREVER)
    plane.end("kube-apiserver")
    rig.submit("a", Program.SUCCEED)
    rig.turn()
    plane.start_apiserver()
    assert rig.finish("a").final is JobState.SUCCEEDED
    assert rig.record("a").attempts == 1
    assert rig.record("b").state is JobState.RUNNING
    assert Done(ActionId(1, "a", 1, 0)) in rig.seen


def test_an_elastic_job_keeps_its_size_until_it_starts_again(rig: Rig) -> None:
    """No pod joins or leaves: to make room for a better one it leaves whole, and starts with what is left."""
    rig.run("a", Program.FOREVER, gpus=1, count=(2, 8))
    assert rig.tasks("a") == 8
    rig.submit("b", Program.FOREVER, gpus=4, priority=100)
    rig.until(rig.is_in("b", JobState.RUNNING))
    rig.until(rig.is_in("a", JobState.RUNNING))
    assert (rig.record("a").attempts, rig.tasks("a")) == (2, 4)
    rig.cancel("b")
    assert rig.finish("b").final is JobState.CANCELLED
    assert (rig.record("a").attempts, rig.tasks("a"), rig.subject.living("a")) == (2, 4, 4)
    rig.cancel("a")
    assert rig.finish("a").final is JobState.CANCELLED
