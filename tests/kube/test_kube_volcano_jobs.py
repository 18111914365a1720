"""Volcano's Jobs without Volcano: `phalanx kube --volcano-jobs` on a real API server."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube_cluster import KubeCluster, create, existing, path_of, wait_for
from kube_objects import node, pod
from kube_site import POD_PATH, create_priority, events, nodes_of, pods, scheduling, verb
from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.volcano import controller

pytestmark = pytest.mark.needs("kubernetes")

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
LAB = Path(__file__).parents[2] / "labs" / "lab01-volcano"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"


def task(name: str, replicas: int = 1, gpus: int = 1, **fields: Any) -> dict[str, Any]:
    spec = pod("any", gpus)["spec"]
    del spec["schedulerName"]
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def job(name: str, *tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"tasks": list(tasks), **spec},
    }


def on(event: str, action: str) -> dict[str, str]:
    return {"event": event, "action": action}


def status(api: Client, name: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"{JOBS}/{name}", dict[str, Any]).get("status", {})
    return found


def phase(api: Client, name: str) -> str:
    return str(status(api, name).get("state", {}).get("phase", ""))


def wait_for_phase(api: Client, name: str, wanted: str) -> None:
    wait_for(f"{name} is {wanted}", lambda: phase(api, name) == wanted)


def wait_for_running(api: Client, *names: str) -> dict[str, str]:
    """The uids of pods, once they run."""

    def running() -> dict[str, str]:
        return {name: each.metadata.uid for name, each in pods(api).items() if each.status.phase == "Running"}

    wait_for(f"{', '.join(names)} run", lambda: sorted(running()) == sorted(names))
    return running()


def end(api: Client, name: str, exit_code: int = 0) -> None:
    """Has a pod end as its kubelet would tell."""
    ended = {"name": "main", "ready": False, "restartCount": 0, "image": "none", "imageID": ""}
    ended["state"] = {"terminated": {"exitCode": exit_code}}  # type: ignore[assignment]
    said = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": [ended]}
    api.patch(f"{POD_PATH}/{name}/status", {"status": said})


def test_the_pods_of_a_job_start_together_and_it_completes_with_them(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("train", task("master"), task("worker", 2), minAvailable=3, queue="research"))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "train-master-0", "train-worker-0", "train-worker-1")
        wait_for_phase(api, "train", "Running")
        group = next(iter(api.get(GROUPS, dict[str, Any])["items"]))
        assert group["spec"] == {"minMember": 3, "minTaskMember": {"master": 1, "worker": 2}, "queue": "research"}
        wait_for("all are counted", lambda: status(api, "train").get("running") == 3)
        assert status(api, "train")["taskStatusCount"]["worker"] == {"phase": {"Running": 2}}
        for name in pods(api):
            end(api, name)
        wait_for_phase(api, "train", "Completed")
    assert [each["status"] for each in status(api, "train")["conditions"]] == ["Pending", "Running", "Completed"]
    assert status(api, "train")["succeeded"] == 3
    assert status(api, "train")["runningDuration"].endswith("s")
    wait_for("an event says so", lambda: "Completed: 3 of 3 pods succeeded" in events(api, "train"))


def test_a_job_that_does_not_fit_is_bound_in_no_part(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("large", task("worker", 3, 4)), job("small", task("worker", 1, 4)))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "small-worker-0")
        wait_for("its pods are there", lambda: len(pods(api)) == 4)
        assert phase(api, "large") == "Pending"


def test_a_pod_that_fails_has_the_whole_job_restarted_until_it_was_retried_enough(
    api: Client, cluster: KubeCluster
) -> None:
    create(api, node("n0"), job("again", task("worker", 2), policies=[on("PodFailed", "RestartJob")], maxRetry=2))
    with scheduling(cluster, volcano_jobs=True):
        before = wait_for_running(api, "again-worker-0", "again-worker-1")
        end(api, "again-worker-1", 3)
        wait_for("both are others", lambda: _are_others(api, before))
        wait_for_phase(api, "again", "Running")
        assert (status(api, "again")["version"], status(api, "again")["retryCount"]) == (1, 1)
        end(api, "again-worker-0", 3)
        wait_for_phase(api, "again", "Failed")
        wait_for("no pod is left", lambda: not pods(api))
    assert status(api, "again")["state"]["message"] == "spec.maxRetry is 2"


def _are_others(api: Client, before: dict[str, str]) -> bool:
    """Whether pods of the same names run that were made since."""
    now = {name: each.metadata.uid for name, each in pods(api).items() if each.status.phase == "Running"}
    return now.keys() == before.keys() and not set(now.values()) & set(before.values())


def test_a_job_whose_pod_is_evicted_waits_for_its_devices_and_starts_anew(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"))
    create(api, job("low", task("worker", 2, 8), policies=[on("PodEvicted", "RestartJob")]))
    with scheduling(cluster, volcano_jobs=True):
        before = wait_for_running(api, "low-worker-0", "low-worker-1")
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the urgent pod is alone", lambda: list(nodes_of(api)) == ["urgent"])
        wait_for("the job has its pods again", lambda: len(pods(api)) == 3)
        assert phase(api, "low") == "Pending"
        api.delete(f"{POD_PATH}/urgent", {"gracePeriodSeconds": 0})
        wait_for("it runs again", lambda: _are_others(api, before))


def test_what_happened_while_no_controller_ran_is_found_by_the_next(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("seen", task("worker", 3), policies=[on("PodEvicted", "RestartJob")]))
    with scheduling(cluster, volcano_jobs=True):
        before = wait_for_running(api, "seen-worker-0", "seen-worker-1", "seen-worker-2")
        wait_for("they are counted", lambda: status(api, "seen").get("running") == 3)
    api.delete(f"{POD_PATH}/seen-worker-1", {"gracePeriodSeconds": 0})
    wait_for("it is gone", lambda: len(pods(api)) == 2)
    with scheduling(cluster, volcano_jobs=True):
        wait_for("all are made anew", lambda: _are_others(api, before))
    assert status(api, "seen")["retryCount"] == 1


def test_policies_go_by_exit_codes_and_those_of_a_task_come_first(api: Client, cluster: KubeCluster) -> None:
    create(
        api,
        node("n0"),
        job(
            "codes",
            task("ps", policies=[on("PodFailed", "RestartTask")]),
            task("worker", policies=[{"exitCode": 7, "action": "AbortJob"}]),
            policies=[on("*", "TerminateJob")],
        ),
    )
    with scheduling(cluster, volcano_jobs=True):
        before = wait_for_running(api, "codes-ps-0", "codes-worker-0")
        end(api, "codes-ps-0", 1)
        wait_for(
            "its pod is gone", lambda: before["codes-ps-0"] not in [each.metadata.uid for each in pods(api).values()]
        )
        after = wait_for_running(api, "codes-ps-0", "codes-worker-0")
        assert after["codes-worker-0"] == before["codes-worker-0"]
        end(api, "codes-worker-0", 7)
        wait_for_phase(api, "codes", "Aborted")
    assert status(api, "codes")["retryCount"] == 1
    assert list(pods(api)) == ["codes-worker-0"], "pods that have ended are kept to be looked at"


def _uids(api: Client) -> list[str]:
    return [each.metadata.uid for each in pods(api).values()]


def test_a_job_is_complete_when_a_task_is_whose_policy_says_so(api: Client, cluster: KubeCluster) -> None:
    master = task("master", policies=[on("TaskCompleted", "CompleteJob")])
    create(
        api,
        node("n0"),
        job("led", master, task("worker", 2)),
        job("any", task("one"), policies=[on("*", "TerminateJob")]),
    )
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "led-master-0", "led-worker-0", "led-worker-1", "any-one-0")
        end(api, "led-master-0")
        end(api, "any-one-0", 1)
        wait_for_phase(api, "led", "Completed")
        wait_for_phase(api, "any", "Terminated")
        wait_for("its workers are ended", lambda: sorted(pods(api)) == ["any-one-0", "led-master-0"])


def test_a_task_waits_for_those_that_it_depends_on(api: Client, cluster: KubeCluster) -> None:
    create(api, job("steps", task("master"), task("worker", 2, dependsOn={"name": ["master"]})))
    with scheduling(cluster, volcano_jobs=True):
        wait_for("the master is made alone", lambda: list(pods(api)) == ["steps-master-0"])
        create(api, node("n0"))
        wait_for_running(api, "steps-master-0", "steps-worker-0", "steps-worker-1")
        wait_for_phase(api, "steps", "Running")


def test_plugins_tell_pods_of_one_another(api: Client, cluster: KubeCluster, tmp_path: Path) -> None:
    plugins = {"env": [], "svc": [], "ssh": ["--ssh-key-file-path=/home/me/.ssh"]}
    create(api, node("n0"), job("mpi", task("master"), task("worker", 2), plugins=plugins))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "mpi-master-0", "mpi-worker-0", "mpi-worker-1")
    spec = api.get(f"{POD_PATH}/mpi-worker-1", dict[str, Any])["spec"]
    variables = {each["name"]: each for each in spec["containers"][0]["env"]}
    assert variables["VC_TASK_INDEX"]["value"] == variables["VK_TASK_INDEX"]["value"] == "1"
    assert variables["VC_WORKER_HOSTS"]["valueFrom"]["configMapKeyRef"] == {"name": "mpi-svc", "key": "VC_WORKER_HOSTS"}
    assert (spec["hostname"], spec["subdomain"]) == ("mpi-worker-1", "mpi")
    paths = [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]
    assert paths == ["/home/me/.ssh", "/etc/volcano"]
    hosts = api.get("/api/v1/namespaces/default/configmaps/mpi-svc", dict[str, Any])["data"]
    assert hosts["VC_WORKER_HOSTS"] == "mpi-worker-0.mpi,mpi-worker-1.mpi"
    assert hosts["VC_WORKER_NUM"] == "2"
    assert hosts["worker.host"] == "mpi-worker-0.mpi\nmpi-worker-1.mpi"
    service = api.get("/api/v1/namespaces/default/services/mpi", dict[str, Any])["spec"]
    assert service["clusterIP"] == "None"
    assert api.get("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/mpi", dict[str, Any])
    secret = api.get("/api/v1/namespaces/default/secrets/mpi-ssh", dict[str, Any])["data"]
    key = tmp_path / "id_rsa"
    key.write_bytes(base64.b64decode(secret["id_rsa"]))
    key.chmod(0o600)
    public = subprocess.run(["ssh-keygen", "-y", "-f", key], check=True, capture_output=True).stdout
    assert public.split()[:2] == base64.b64decode(secret["authorized_keys"]).split()[:2]


def test_a_job_that_is_over_is_deleted_after_its_time(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("short", task("worker"), ttlSecondsAfterFinished=1))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "short-worker-0")
        end(api, "short-worker-0")
        wait_for("it is gone", lambda: not _is_there(api, "short"))


def _is_there(api: Client, name: str) -> bool:
    try:
        api.ask("GET", f"{JOBS}/{name}")
    except NotFoundError:
        return False
    return True


def test_a_job_that_asks_for_what_there_is_not_names_the_field(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("odd", task("worker"), plugins={"pytorch": []}))
    with scheduling(cluster, volcano_jobs=True):
        wait_for("it says so", lambda: status(api, "odd").get("state", {}).get("reason") == "Refused")
        said = status(api, "odd")["state"]["message"]
        assert said == "spec.plugins: expected some of env, ssh, svc, got pytorch"
        assert not pods(api)
        api.patch(f"{JOBS}/odd", {"spec": {"plugins": None}}, "merge-patch")
        wait_for_running(api, "odd-worker-0")
        wait_for_phase(api, "odd", "Running")


def test_a_job_of_a_billion_pods_makes_none_and_is_told_so(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("endless", task("worker", 10**9), minAvailable=1), job("fine", task("worker")))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "fine-worker-0")
        wait_for("it says so", lambda: "10000 replicas" in status(api, "endless").get("state", {}).get("message", ""))
    assert list(pods(api)) == ["fine-worker-0"]


def test_a_job_takes_no_service_that_is_of_another(
    api: Client, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is chosen by whoever may create jobs, and they need not be allowed to change services."""
    monkeypatch.setattr(controller, "TAKEN_RETRY_S", 0.5)
    spec = {"selector": {"app": "shop"}, "ports": [{"port": 80}]}
    shop = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop"}, "spec": spec}
    services = "/api/v1/namespaces/default/services"
    with existing(api, (services, shop)), scheduling(cluster, volcano_jobs=True):
        create(api, node("n0"), job("shop", task("worker"), plugins={"svc": []}))
        wait_for(
            "an event says so", lambda: any("Service default/shop is there" in each for each in events(api, "shop"))
        )
        there = api.get(f"{services}/shop", dict[str, Any])
        assert there["spec"]["selector"] == {"app": "shop"}
        assert "ownerReferences" not in there["metadata"]
        assert not pods(api)
        api.delete(f"{services}/shop")
        wait_for_running(api, "shop-worker-0")


def test_a_job_takes_over_what_was_made_for_one_of_its_name_before_it(api: Client, cluster: KubeCluster) -> None:
    """Nothing is deleted here with its owner, and in a cluster only after a while."""
    services = "/api/v1/namespaces/default/services"
    create(api, node("n0"))
    with scheduling(cluster, volcano_jobs=True):
        for _ in range(2):
            create(api, job("anew", task("worker"), plugins={"svc": []}))
            wait_for_running(api, "anew-worker-0")
            uid = api.get(f"{JOBS}/anew", dict[str, Any])["metadata"]["uid"]
            owners = api.get(f"{services}/anew", dict[str, Any])["metadata"]["ownerReferences"]
            assert [each["uid"] for each in owners] == [uid]
            api.delete(f"{JOBS}/anew")
            wait_for("the job is gone", lambda: not _is_there(api, "anew"))
            api.delete(f"{POD_PATH}/anew-worker-0", {"gracePeriodSeconds": 0})
            wait_for("its pod is gone", lambda: not pods(api))


@pytest.mark.parametrize("name", ["gang_scheduling_demo.yaml", "topology_aware_placement.yaml"])
def test_what_the_lab_has_is_what_volcano_defines(api: Client, name: str) -> None:
    for each in yaml.safe_load_all((LAB / name).read_text()):
        api.post(path_of(each), each, dryRun="All", fieldValidation="Strict")


def test_a_job_follows_its_spec_while_it_runs(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), job("sized", task("worker", 3), minAvailable=1))
    with scheduling(cluster, volcano_jobs=True):
        wait_for_running(api, "sized-worker-0", "sized-worker-1", "sized-worker-2")
        for replicas in (1, 2):
            api.patch(f"{JOBS}/sized", {"spec": {"tasks": [task("worker", replicas)]}}, "merge-patch")
            wait_for_running(api, *(f"sized-worker-{i}" for i in range(replicas)))
    assert status(api, "sized").get("retryCount", 0) == 0


def test_a_controller_that_is_killed_is_followed_by_one_that_goes_on(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(4)))
    with verb(cluster, "--volcano-jobs") as process:
        create(api, job("many", task("worker", 32)))
        wait_for("some pods are made", lambda: bool(pods(api)), 60)
        process.kill()
        process.wait()
    with verb(cluster, "--volcano-jobs"):
        wait_for("all run", lambda: len(nodes_of(api)) == 32, 60)
        wait_for_phase(api, "many", "Running")
