"""Gangs in the dialects of KAI, Kueue, Kubeflow and HiveD."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from kube_objects import as_group, as_pod, group, node, pod
from kube_turns import Site
from phalanx.kube.api.reflector import Changed
from phalanx.kube.gangs.groups import KAI
from phalanx.kube.mirror import PODS
from phalanx.kube.objects.kubeflow import KubeflowJob
from phalanx.kube.objects.pod import Pod

RACK = "topology.example/rack"


def racks() -> list[dict[str, Any]]:
    """Two nodes in each of two racks; of the first rack one is small."""
    return [node("n0", 8, {RACK: "r0"}), node("n1", 1, {RACK: "r0"}), *(node(f"n{i}", 8, {RACK: "r1"}) for i in (2, 3))]


def said(name: str, labels: dict[str, str], annotations: dict[str, str], gated: bool = False) -> Pod:
    gates = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]} if gated else {}
    written = pod(name, 8, **gates)
    written["metadata"] |= {"labels": labels, "annotations": annotations}
    return as_pod(written)


def kueue(name: str, count: str = "2", gated: bool = False, **annotations: str) -> Pod:
    size = {"kueue.x-k8s.io/pod-group-total-count": count, **annotations}
    return said(name, {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "team"}, size, gated)


def kai(name: str) -> Pod:
    return said(name, {"kai.scheduler/queue": "team"}, {"pod-group-name": "g"})


def kai_group(**spec: Any) -> dict[str, Any]:
    return {**group("g", 2), "apiVersion": "scheduling.run.ai/v2alpha2", "spec": {"minMember": 2, **spec}}


def places(site: Site) -> list[list[str]]:
    return [sorted(nodes.values()) for _, _, nodes in site.asked.binds]


def test_a_pod_group_of_kueue_starts_whole_once_its_gates_are_off() -> None:
    site = Site(2)
    site.say(kueue("a", gated=True), kueue("b", gated=True))
    assert places(site) == []
    site.say(kueue("a"))
    assert places(site) == []
    assert "2 pods of pod group of Kueue default/g start together, and 1" in site.asked.lines["a"]
    site.say(kueue("b"))
    assert places(site) == [["n0", "n1"]]


def test_a_pod_group_of_kueue_lies_in_one_domain_of_its_topology() -> None:
    site = Site(racks())
    topology = {"kueue.x-k8s.io/podset-required-topology": RACK}
    site.say(kueue("a", **topology), kueue("b", **topology))
    assert places(site) == [["n2", "n3"]]


@pytest.mark.parametrize("count", ["", "many", "9" * 5000])
def test_a_count_that_is_none_is_told(count: str) -> None:
    site = Site(2)
    site.say(kueue("a", count))
    assert places(site) == []
    line = site.asked.lines["a"]
    assert line.startswith("annotation kueue.x-k8s.io/pod-group-total-count: expected a number of pods")
    assert len(line) < 300


def site_of_kai(**spec: Any) -> Site:
    site = Site(racks())
    site.mirror.take(Changed(KAI, as_group(kai_group(**spec)), gone=False))
    for name in ("a", "b"):
        site.mirror.take(Changed(PODS, kai(name), gone=False))
    site.turn()
    return site


def test_a_group_of_kai_starts_whole_in_its_queue() -> None:
    site = site_of_kai(queue="team")
    assert len(places(site)) == 1
    (record,) = site.state.jobs.values()
    assert record.job.queue == "team"


def test_a_group_of_kai_lies_in_one_domain_of_its_topology() -> None:
    site = site_of_kai(topologyConstraint={"topology": "racks", "requiredTopologyLevel": RACK})
    assert places(site) == [["n2", "n3"]]


def test_sub_groups_of_kai_are_told_not_to_be_looked_at() -> None:
    site = site_of_kai(subGroups=[{"name": "leader", "minMember": 1}])
    assert places(site) == []
    assert "phalanx does not look at spec.subGroups yet" in site.asked.lines["a"]


def test_a_group_of_kai_that_is_non_preemptible_is_not_evicted() -> None:
    site = site_of_kai(preemptibility="non-preemptible")
    (record,) = site.state.jobs.values()
    assert not record.job.preemptible


def test_a_topology_of_kueue_without_constraint_lets_pods_lie_anywhere() -> None:
    site = Site(racks())
    topology = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    site.say(kueue("a", **topology), kueue("b", **topology))
    assert [len(nodes) for nodes in places(site)] == [2]


@pytest.mark.parametrize(
    "name",
    [
        "kueue.x-k8s.io/podset-slice-required-topology",
        "kueue.x-k8s.io/podset-slice-size",
        "kueue.x-k8s.io/podset-group-name",
    ],
)
def test_what_kueue_would_do_and_phalanx_does_not_is_refused_by_name(name: str) -> None:
    site = Site(2)
    site.say(kueue("a", **{name: "2"}), kueue("b", **{name: "2"}))
    assert places(site) == []
    assert f"phalanx does not look at the annotation {name} yet" in site.asked.lines["a"]


def test_pods_of_kueue_that_are_made_one_after_the_other_start_each_by_itself() -> None:
    site = Site(2)
    site.say(kueue("a", **{"kueue.x-k8s.io/pod-group-fast-admission": "true"}))
    assert [len(nodes) for nodes in places(site)] == [1]


def test_pods_of_one_group_that_say_different_things_wait() -> None:
    site = Site(4)
    site.say(kueue("a"), kueue("b", "1"))
    assert places(site) == []
    assert site.asked.lines["a"] == "pods of pod group of Kueue default/g say different things of it"


@pytest.mark.parametrize(("label", "queue"), [("kueue.x-k8s.io/queue-name", "team"), ("", "default")])
def test_a_label_names_the_queue_where_the_site_says_so(label: str, queue: str) -> None:
    site = Site(2)
    site.mirror.queue_label = label
    site.say(kueue("a", "1"))
    (record,) = site.state.jobs.values()
    assert record.job.queue == queue


def replica(name: str, kind: str, role: str) -> Pod:
    written = pod(name, 8)
    written["metadata"] |= {
        "labels": {"training.kubeflow.org/job-name": "g", "training.kubeflow.org/replica-type": role},
        "ownerReferences": [{"kind": kind, "name": "g", "uid": "g", "controller": True}],
    }
    return as_pod(written)


def job(kind: str, **spec: Any) -> Changed[Any]:
    written = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    return Changed(f"kubeflow.org {kind}", msgspec.convert(written, KubeflowJob), gone=False)


def test_pods_of_a_pytorch_job_start_together() -> None:
    site = Site(3)
    site.mirror.take(job("PyTorchJob", pytorchReplicaSpecs={"Master": {}, "Worker": {"replicas": 2}}))
    site.say(replica("a", "PyTorchJob", "master"), replica("b", "PyTorchJob", "worker"))
    assert places(site) == []
    assert "3 pods of PyTorchJob default/g start together, and 2 are there" in site.asked.lines["a"]
    site.say(replica("c", "PyTorchJob", "worker"))
    assert places(site) == [["n0", "n1", "n2"]]


def test_an_elastic_pytorch_job_starts_with_its_fewest_workers() -> None:
    site = Site(4)
    site.mirror.take(
        job("PyTorchJob", pytorchReplicaSpecs={"Worker": {"replicas": 3}}, elasticPolicy={"minReplicas": 2})
    )
    site.say(replica("a", "PyTorchJob", "worker"), replica("b", "PyTorchJob", "worker"))
    assert [len(nodes) for nodes in places(site)] == [2]


def test_what_a_kubeflow_job_says_for_schedulers_of_gangs_holds() -> None:
    site = Site(2)
    policy = {"schedulingPolicy": {"minAvailable": 1, "queue": "team"}}
    site.mirror.take(job("PyTorchJob", pytorchReplicaSpecs={"Worker": {"replicas": 2}}, runPolicy=policy))
    site.say(replica("a", "PyTorchJob", "worker"))
    (record,) = site.state.jobs.values()
    assert (record.job.queue, len(places(site))) == ("team", 1)


def test_the_launcher_of_an_mpi_job_waits_for_no_workers_nor_they_for_it() -> None:
    site = Site(3)
    site.mirror.take(job("MPIJob", mpiReplicaSpecs={"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}))
    site.say(replica("launcher", "MPIJob", "launcher"), replica("a", "MPIJob", "worker"))
    assert [len(nodes) for nodes in places(site)] == [1]
    site.say(replica("b", "MPIJob", "worker"))
    assert [len(nodes) for nodes in places(site)] == [1, 2]


def test_a_pod_that_only_names_a_kubeflow_job_is_by_itself() -> None:
    site = Site(1)
    site.say(said("a", {"training.kubeflow.org/job-name": "g"}, {}))
    assert places(site) == [["n0"]]


HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"


def hived_pod(name: str, pods: int = 2, priority: int = 0, **spec: Any) -> Pod:
    asked = {
        "virtualCluster": "vc",
        "priority": priority,
        "leafCellNumber": 8,
        "affinityGroup": {"name": "g", "members": [{"podNumber": pods, "leafCellNumber": 8}]},
        **spec,
    }
    written = pod(name, 8)
    written["metadata"]["annotations"] = {HIVED: yaml.safe_dump(asked)}
    written["spec"]["containers"][0]["resources"]["limits"]["hivedscheduler.microsoft.com/pod-scheduling-enable"] = 1
    return as_pod(written)


def test_an_affinity_group_of_hived_starts_whole_in_its_virtual_cluster() -> None:
    site = Site(2)
    site.say(hived_pod("a", priority=-1))
    assert places(site) == []
    assert "2 pods of affinity group of HiveD default/g start together, and 1" in site.asked.lines["a"]
    site.say(hived_pod("b", priority=-1))
    assert places(site) == [["n0", "n1"]]
    (record,) = site.state.jobs.values()
    assert (record.job.queue, record.job.priority) == ("vc", -1)


def test_a_leaf_cell_type_of_hived_is_the_product_of_the_gpus() -> None:
    nodes = [node(f"n{i}", 8, {"nvidia.com/gpu.product": name}) for i, name in enumerate(["A100", "V100"])]
    site = Site(nodes)
    site.say(hived_pod("a", 1, leafCellType="V100"))
    assert places(site) == [["n1"]]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ({"pinnedCellId": "c"}, "does not look at pinnedCellId"),
        ({"lazyPreemptionEnable": True}, "does not look at lazyPreemptionEnable: true"),
        ({"ignoreK8sSuggestedNodes": False}, "does not look at ignoreK8sSuggestedNodes: false"),
        ({"quota": {"tag": "t", "count": 3}}, "does not look at quota"),
        ({"priority": 5}, "priority 5 is above 0, that of its PriorityClass"),
        ({"leafCellNumber": 4, "affinityGroup": None}, "leafCellNumber is 4, and its containers ask for 8 GPUs"),
        ({"leafCellNumbers": 4}, "leafCellNumbers"),
    ],
)
def test_what_hived_would_do_and_phalanx_does_not_is_refused_by_name(spec: dict[str, Any], line: str) -> None:
    site = Site(2)
    site.say(hived_pod("a", **{"pods": 1, **spec}))
    assert places(site) == []
    assert line in site.asked.lines["a"]


LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x" * 2_000_000, "expected at most 4096 characters, got 2000000"),
        (LAUGHS, "values, aliases included, got more"),
        ("[" * 4000, "levels of nesting"),
        ("!!python/object/apply:os.system [id]", "the tag"),
        ("\0", "U+0000"),
        ("7", HIVED),
    ],
)
def test_garbage_for_hived_is_refused_and_harms_no_others(text: str, line: str) -> None:
    site = Site(1)
    site.say(said("a", {}, {HIVED: text}))
    assert line in site.asked.lines["a"]
    assert len(site.asked.lines["a"]) < 300
    site.say(as_pod(pod("b", 8)))
    assert places(site) == [["n0"]]
