"""RayClusters and RayJobs of KubeRay: its own operator makes the pods, on a real API server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kube_cluster import KubeCluster, create, define, definitions, folder, wait_for
from kube_objects import node, pod
from kube_site import create_priority, nodes_of, pods, scheduling
from phalanx.compat.kuberay import Site, ray_cluster, ray_job
from phalanx.kube.api.client import Client
from phalanx.workload.formats.native import read_job

pytestmark = [pytest.mark.needs("kubernetes"), pytest.mark.needs("kuberay")]

CLUSTERS = "/apis/ray.io/v1/namespaces/default/rayclusters"
JOBS = "/apis/ray.io/v1/namespaces/default/rayjobs"
SITE = Site("2.60.0")


@pytest.fixture(scope="module")
def operator(cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """KubeRay's operator, which makes pods of what the tests write. It must find all its kinds."""
    with cluster.client() as api:
        define(api, definitions(), *(("ray.io", "v1", kind) for kind in ("RayJob", "RayService", "RayCronJob")))
    scratch = tmp_path_factory.mktemp("operator")
    addresses = ("--metrics-addr", "0", "--health-probe-bind-address", "0")
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [folder() / "ray-operator", *addresses, "--enable-leader-election=false"],
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_for("the operator works", lambda: "Starting workers" in (scratch / "log").read_text(), 60)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def site(api: Client, operator: None) -> Iterator[Client]:
    """A cluster with four nodes of eight GPUs, and nothing of Ray left afterwards."""
    create(api, *(node(f"n{i}") for i in range(4)))
    yield api
    for path in (JOBS, CLUSTERS):
        found: Any = api.get(path, dict[str, Any])
        for each in found["items"]:
            api.delete(f"{path}/{each['metadata']['name']}", {"propagationPolicy": "Background"})
        wait_for("KubeRay has let go", lambda path=path: not items(api, path))  # type: ignore[misc]


def items(api: Client, path: str) -> list[dict[str, Any]]:
    found: Any = api.get(path, dict[str, Any])
    return list(found["items"])


def names(api: Client, path: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(api, path)]


def collect(api: Client, owner: str) -> None:
    """Stands for Kubernetes' garbage collector: ends the pods of an owner that is gone."""
    for name, each in pods(api).items():
        if any(reference.name == owner for reference in each.metadata.owner_references or ()):
            api.delete(f"/api/v1/namespaces/default/pods/{name}")


def manifest(write: Any, replicas: str, name: str = "train") -> dict[str, Any]:
    text = f"name: {name}\ncommand: [python, train.py]\ngang: [{{replicas: {replicas}, gpus: 8}}]\n"
    written = write(read_job(text, "job.yaml", "1"), SITE)
    assert isinstance(written, dict)
    written["metadata"]["namespace"] = "default"
    return written


@pytest.mark.parametrize("replicas", ["2", "{min: 1, max: 3}"])
def test_what_is_exported_is_what_kuberay_defines(site: Client, replicas: str) -> None:
    for write, path in ((ray_cluster, CLUSTERS), (ray_job, JOBS)):
        site.post(path, manifest(write, replicas), fieldValidation="Strict", dryRun="All")


def test_pods_of_a_ray_cluster_start_together_or_not_at_all(site: Client, cluster: KubeCluster) -> None:
    with scheduling(cluster):
        site.post(CLUSTERS, manifest(ray_cluster, "5"))
        wait_for("KubeRay has made all pods", lambda: len(pods(site)) == 6)
        assert nodes_of(site) == {}
        create(site, node("n4"))
        wait_for("all are bound", lambda: len(nodes_of(site)) == 6)


def test_a_ray_cluster_makes_way_and_comes_back_as_a_whole(site: Client, cluster: KubeCluster) -> None:
    with scheduling(cluster):
        site.post(CLUSTERS, manifest(ray_cluster, "4"))
        wait_for("all are bound", lambda: len(nodes_of(site)) == 5)
        before = {each.metadata.uid for each in pods(site).values()}
        create_priority(site, "urgent", 1000)
        create(site, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the urgent one runs", lambda: "urgent" in nodes_of(site), 60)
        wait_for("KubeRay has made its pods anew", lambda: len(pods(site)) == 6, 60)
        after = {each.metadata.uid for name, each in pods(site).items() if name != "urgent"}
        assert not before & after
        assert list(nodes_of(site)) == ["urgent"]
        (found,) = items(site, CLUSTERS)
        assert not found["spec"].get("suspend")
        assert "phalanx.dev/suspended" not in found["metadata"].get("annotations", {})
        site.delete("/api/v1/namespaces/default/pods/urgent")
        wait_for("all are bound again", lambda: len(nodes_of(site)) == 5, 60)


def test_a_ray_job_makes_way_without_having_failed(site: Client, cluster: KubeCluster) -> None:
    with scheduling(cluster):
        site.post(JOBS, manifest(ray_job, "4"))
        wait_for("all are bound", lambda: len(nodes_of(site)) == 5, 60)
        first = items(site, CLUSTERS)[0]["metadata"]["name"]
        create_priority(site, "urgent", 1000)
        create(site, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("KubeRay deletes its cluster", lambda: first not in names(site, CLUSTERS), 60)
        collect(site, first)
        wait_for("the urgent one runs", lambda: "urgent" in nodes_of(site), 60)
        wait_for("it has another cluster", lambda: bool(names(site, CLUSTERS)), 60)
        (found,) = items(site, JOBS)
        assert found["status"].get("failed", 0) == 0
        assert found["status"]["jobDeploymentStatus"] != "Failed"
        assert not found["spec"].get("suspend")


def test_what_a_killed_scheduler_left_suspended_is_resumed_by_the_next(site: Client, cluster: KubeCluster) -> None:
    written = manifest(ray_cluster, "1")
    written["metadata"]["annotations"] = {"phalanx.dev/suspended": "true"}
    written["spec"]["suspend"] = True
    site.post(CLUSTERS, written)
    with scheduling(cluster):
        wait_for("its pods run", lambda: len(nodes_of(site)) == 2, 60)


def test_one_that_its_user_suspended_stays_so(site: Client, cluster: KubeCluster) -> None:
    written = manifest(ray_cluster, "1")
    written["spec"]["suspend"] = True
    site.post(CLUSTERS, written)
    with scheduling(cluster):
        site.post(CLUSTERS, manifest(ray_cluster, "1", "other"))
        wait_for("another runs", lambda: len(nodes_of(site)) == 2, 60)
        assert all(name.startswith("other") for name in pods(site))
