"""Gangs that the owners of pods make, on a real API server. The tests stand for the controllers of these."""

from __future__ import annotations

from typing import Any

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import nodes_of, reason, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def named(kind: str, version: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}}


def batch_job(name: str, **spec: Any) -> dict[str, Any]:
    return named("Job", "batch/v1", name, template=TEMPLATE, **spec)


def replicated(name: str, replicas: int) -> dict[str, Any]:
    """Jobs of a JobSet, each of one pod."""
    return {"name": name, "replicas": replicas, "template": {"spec": {"parallelism": 1, "template": TEMPLATE}}}


def owned(written: dict[str, Any], labels: dict[str, str] | None = None, **annotations: str) -> dict[str, Any]:
    """A pod with labels and annotations, whose owner is the Job of its name before the last hyphen."""
    metadata = written["metadata"]
    metadata["labels"] = labels or {}
    metadata["annotations"] = {name.replace("__", "/").replace("_", "."): each for name, each in annotations.items()}
    owner = metadata["name"].rpartition("-")[0]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u-1", "controller": True}
    metadata["ownerReferences"] = [reference]
    return written


def test_the_pods_of_a_job_that_says_so_start_together(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), batch_job("j", parallelism=2, completions=4))
    with scheduling(cluster):
        create(api, owned(pod("j-0", 8), phalanx_dev__gang="true"))
        wait_for("the first waits", lambda: "2 pods of Job default/j start together, and 1" in reason(api, "j-0"))
        create(api, owned(pod("j-1", 8), phalanx_dev__gang="true"))
        wait_for("both are bound", lambda: len(nodes_of(api)) == 2)


def test_the_pods_of_a_job_that_does_not_say_so_start_each_by_itself(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), batch_job("j", parallelism=2), owned(pod("j-0", 8)))
    with scheduling(cluster):
        wait_for("the first is bound", lambda: "j-0" in nodes_of(api))


def test_any_owner_can_name_a_number_and_one_that_is_none_is_told_so(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), owned(pod("x-0", 1), phalanx_dev__gang="2"), owned(pod("y-0", 1), phalanx_dev__gang="all"))
    with scheduling(cluster):
        wait_for("it waits for another", lambda: "2 pods of pods of default/x" in reason(api, "x-0"))
        wait_for("what is no number is said", lambda: "a number of pods; got 'all'" in reason(api, "y-0"))
        create(api, owned(pod("x-1", 1), phalanx_dev__gang="2"))
        wait_for("both are bound", lambda: sorted(nodes_of(api)) == ["x-0", "x-1"])


def test_all_jobs_of_a_job_set_start_together(api: Client, cluster: KubeCluster) -> None:
    jobs = [replicated("driver", 1), replicated("workers", 2)]
    label = {"jobset.sigs.k8s.io/jobset-name": "s"}
    create(
        api, *(node(f"n{i}") for i in range(3)), named("JobSet", "jobset.x-k8s.io/v1alpha2", "s", replicatedJobs=jobs)
    )
    with scheduling(cluster):
        create(api, *(owned(pod(f"s-{i}", 8), label) for i in range(2)))
        wait_for("two wait", lambda: "3 pods of JobSet default/s start together, and 2" in reason(api, "s-1"))
        create(api, owned(pod("s-2", 8), label))
        wait_for("all are bound", lambda: len(nodes_of(api)) == 3)


def test_jobs_of_a_job_set_that_start_in_order_do_not_wait_for_one_another(api: Client, cluster: KubeCluster) -> None:
    spec = {"replicatedJobs": [replicated("a", 2)], "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    create(api, node("n0"), named("JobSet", "jobset.x-k8s.io/v1alpha2", "s", **spec))
    with scheduling(cluster):
        create(api, owned(pod("s-0", 1), {"jobset.sigs.k8s.io/jobset-name": "s"}))
        wait_for("the first is bound", lambda: "s-0" in nodes_of(api))


def leaders(policy: str) -> dict[str, Any]:
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}
    return named("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "l", **spec)


def in_group(name: str, index: int) -> dict[str, Any]:
    labels = {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": str(index)}
    return owned(pod(name, 8), labels, leaderworkerset_sigs_k8s_io__size="2")


def test_a_leader_and_its_workers_start_together(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(2)), leaders("LeaderCreated"))
    with scheduling(cluster):
        create(api, in_group("l-0", 0), in_group("l-1", 1))
        wait_for("each waits for its worker", lambda: "2 pods of group of LeaderWorkerSet" in reason(api, "l-1"))
        create(api, in_group("l-1-1", 1))
        wait_for("a group is bound", lambda: sorted(nodes_of(api)) == ["l-1", "l-1-1"])


def test_a_leader_that_its_workers_wait_for_starts_alone(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), leaders("LeaderReady"), in_group("l-0", 0))
    with scheduling(cluster):
        wait_for("the leader is bound", lambda: "l-0" in nodes_of(api))


def ray_cluster(*workers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    of_all = {"template": {"spec": {"containers": [{"name": "ray", "image": "none"}]}}, "rayStartParams": {}}
    groups = [{"groupName": f"g{i}", "maxReplicas": 9, **of_all, **each} for i, each in enumerate(workers)]
    return named("RayCluster", "ray.io/v1", "r", headGroupSpec=of_all, workerGroupSpecs=groups, **spec)


def of_ray(name: str, node_type: str) -> dict[str, Any]:
    return owned(pod(name, 8), {"ray.io/cluster": "r", "ray.io/node-type": node_type})


def test_the_head_of_a_ray_cluster_and_all_workers_start_together(api: Client, cluster: KubeCluster) -> None:
    """A group that is suspended has no workers, and a replica has as many pods as hosts."""
    groups = {"replicas": 1, "minReplicas": 0, "numOfHosts": 2}, {"replicas": 3, "minReplicas": 0, "suspend": True}
    create(api, *(node(f"n{i}") for i in range(3)), ray_cluster(*groups))
    with scheduling(cluster):
        create(api, of_ray("r-head", "head"), of_ray("r-a-0", "worker"))
        wait_for("two wait", lambda: "3 pods of RayCluster default/r start together, and 2" in reason(api, "r-head"))
        create(api, of_ray("r-a-1", "worker"))
        wait_for("all are bound", lambda: len(nodes_of(api)) == 3)


def test_where_ray_scales_by_itself_the_head_and_the_fewest_workers_start_first(
    api: Client, cluster: KubeCluster
) -> None:
    scaling = ray_cluster({"replicas": 2, "minReplicas": 1, "maxReplicas": 4}, enableInTreeAutoscaling=True)
    create(api, *(node(f"n{i}") for i in range(2)), scaling)
    create(api, *(of_ray(f"r-a-{i}", "worker") for i in range(2)), of_ray("r-head", "head"))
    with scheduling(cluster):
        wait_for("there is room for two", lambda: len(nodes_of(api)) == 2)
        wait_for("another waits for GPUs", lambda: "GPUs" in (reason(api, "r-a-0") + reason(api, "r-a-1")))
        assert "r-head" in nodes_of(api)
        create(api, node("n2"))
        wait_for("it starts by itself", lambda: len(nodes_of(api)) == 3)


def test_a_group_of_volcano_needs_so_many_pods_of_each_task(api: Client, cluster: KubeCluster) -> None:
    volcano = named("PodGroup", "scheduling.volcano.sh/v1beta1", "v", minMember=2, minTaskMember={"ps": 1, "worker": 1})
    create(api, node("n0"), volcano)
    say = {"scheduling_k8s_io__group-name": "v"}
    with scheduling(cluster):
        create(api, *(owned(pod(f"w-{i}", 1), {"volcano.sh/task-spec": "worker"}, **say) for i in range(2)))
        wait_for("two workers wait", lambda: "0 of 1 of ps, 2 of 1 of worker" in reason(api, "w-1"))
        create(api, owned(pod("ps-0", 1), {"volcano.sh/task-spec": "ps"}, **say))
        wait_for("all are bound", lambda: len(nodes_of(api)) == 3)


def hyper_node(name: str, tier: int, kind: str, *members: str) -> dict[str, Any]:
    exact = [{"type": kind, "selector": {"exactMatch": {"name": each}}} for each in members]
    spec = {"tier": tier, "members": exact}
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": spec,
    }


def near(tier: int) -> dict[str, Any]:
    """A group of Volcano of two pods that lie in one HyperNode of a tier."""
    topology = {"mode": "hard", "highestTierAllowed": tier}
    return named("PodGroup", "scheduling.volcano.sh/v1beta1", f"near-{tier}", minMember=2, networkTopology=topology)


def test_a_group_of_volcano_lies_in_one_hyper_node(api: Client, cluster: KubeCluster) -> None:
    """Of the four nodes one of each pair is full, so that two free ones are together only at the second tier."""
    pairs = hyper_node("s0", 1, "Node", "n0", "n1"), hyper_node("s1", 1, "Node", "n2", "n3")
    create(api, *(node(f"n{i}") for i in range(4)), *pairs, hyper_node("s2", 2, "HyperNode", "s0", "s1"))
    create(api, *(pod(f"busy-{i}", 8, schedulerName="other", nodeName=f"n{i}") for i in (0, 2)), near(1), near(2))
    with scheduling(cluster):
        create(api, *(owned(pod(f"a-{i}", 8), **{"scheduling_k8s_io__group-name": "near-1"}) for i in range(2)))
        wait_for("no pair has room for both", lambda: "no one domain has room" in reason(api, "a-1"))
        create(api, *(owned(pod(f"b-{i}", 8), **{"scheduling_k8s_io__group-name": "near-2"}) for i in range(2)))
        wait_for("both are bound", lambda: {"b-0", "b-1"} <= nodes_of(api).keys())
