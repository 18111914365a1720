"""What Kubernetes says of nodes and pods, in the words of the engine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_objects import as_group, as_node, as_pod, node, pod
from phalanx.cluster.cluster import Health, Taint
from phalanx.kube.api.quantity import quantity, up
from phalanx.kube.gangs.bundle import Bundle, RefusedError, job_of
from phalanx.kube.gangs.groups import NATIVE, PLUGINS, VOLCANO, GroupRef, group_of, topology_of
from phalanx.kube.nodes import cluster_of, health_of
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import NodeSelector, Pod
from phalanx.kube.pods.demand import Demand, demand_of
from phalanx.kube.pods.selection import NO_VALUE, affinity_label, affinity_of, meets
from phalanx.workload.gang import Topology
from phalanx.workload.toleration import Toleration

NVIDIA = {"nvidia.com/gpu": ("nvidia.com/gpu",)}


def container(restart: str = "", **requests: str) -> dict[str, Any]:
    named = {"gpu": "nvidia.com/gpu"}
    return {
        "name": "c",
        "restartPolicy": restart,
        "resources": {"requests": {named.get(name, name): amount for name, amount in requests.items()}},
    }


def demand(**spec: Any) -> Demand:
    return demand_of(as_pod({"metadata": {"name": "p"}, "spec": spec}))


def job(*pods: dict[str, Any], topology: str = "", gpu_types: dict[str, tuple[str, ...]] | None = None) -> Any:
    bundle = Bundle("default/gang@1", tuple(map(as_pod, pods)), topology=topology)
    return job_of(bundle, NVIDIA if gpu_types is None else gpu_types)


@pytest.mark.parametrize(
    ("written", "milli"), [("16", 16000), ("500m", 500), ("1.5", 1500), ("1e3", 10**6), ("2k", 2 * 10**6), ("1n", 1)]
)
def test_a_quantity_is_read_as_kubernetes_writes_it(written: str, milli: int) -> None:
    assert up(1000 * quantity(written)) == milli


@pytest.mark.parametrize("written", ["", "GPU", "1.2.3", "5Zi", "--1"])
def test_what_is_no_quantity_is_refused_with_what_was_expected(written: str) -> None:
    with pytest.raises(ValueError, match="expected a quantity such as"):
        quantity(written)


def test_containers_of_a_pod_add_up() -> None:
    asked = demand(containers=[container(cpu="1500m", memory="1Gi"), container(cpu="1", gpu="2", memory="1")])
    assert asked == Demand(2, "nvidia.com/gpu", 2500, 1025)


def test_a_limit_stands_in_for_a_request_that_is_not_said() -> None:
    limited = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 4, "cpu": "2"}, "requests": {"cpu": "1"}}}
    assert demand(containers=[limited]) == Demand(4, "nvidia.com/gpu", 1000)


def test_a_start_up_step_that_needs_more_than_what_runs_decides() -> None:
    assert demand(containers=[container(cpu="1")], initContainers=[container(cpu="4")]).cpus_milli == 4000
    assert demand(containers=[container(cpu="4")], initContainers=[container(cpu="1")]).cpus_milli == 4000


def test_a_sidecar_runs_beside_the_rest_and_beside_start_up_steps_after_it() -> None:
    sidecar, step = container("Always", cpu="1"), container(cpu="4")
    assert demand(containers=[container(cpu="2")], initContainers=[sidecar]).cpus_milli == 3000
    assert demand(containers=[container(cpu="2")], initContainers=[sidecar, step]).cpus_milli == 5000
    assert demand(containers=[container(cpu="2")], initContainers=[step, sidecar]).cpus_milli == 4000


def test_the_overhead_of_a_runtime_comes_on_top() -> None:
    assert demand(containers=[container(cpu="1")], overhead={"cpu": "250m"}).cpus_milli == 1250


def test_resources_of_other_names_are_counted_by_their_names() -> None:
    asked = demand(containers=[container(**{"nvidia.com/mig-1g.10gb": "2", "ephemeral-storage": "1Gi"})])
    assert asked.others == (("ephemeral-storage", 1024), ("nvidia.com/mig-1g.10gb", 2))
    assert asked.gpus == 0


def test_a_node_has_what_it_can_give_to_pods() -> None:
    written = node("n0", gpus=8, labels={"nvidia.com/gpu.product": "H100"})
    written["status"]["allocatable"] = {**written["status"]["allocatable"], "cpu": "63500m", "rdma/hca": "4"}
    (found,) = cluster_of([as_node(written)]).nodes
    assert (found.gpus, found.gpu_type, found.cpus_milli, found.memory_mb) == (8, "H100", 63500, 512 * 1024)
    assert found.storage_gb == (("pods", 110), ("rdma/hca", 4))


def test_what_pods_of_others_use_of_a_named_resource_is_taken_from_the_node() -> None:
    written = node("n0")
    written["status"]["allocatable"]["rdma/hca"] = "4"
    (found,) = cluster_of([as_node(written)], used={"n0": {"rdma/hca": 3}}).nodes
    assert found.storage_gb == (("pods", 110), ("rdma/hca", 1))


def test_labels_of_domains_are_levels_and_a_node_without_one_is_near_to_none() -> None:
    zone, leaf = "topology.kubernetes.io/zone", "network.topology.nvidia.com/leaf"
    found = cluster_of(
        [as_node(node("b", labels={zone: "z1", leaf: "l1"})), as_node(node("a", labels={zone: "z1"}))],
    )
    assert found.levels == (zone, leaf, "node")
    assert [(each.name, each.path) for each in found.nodes] == [("a", ("z1", "node a")), ("b", ("z1", "l1"))]


def test_tiers_of_topograph_are_levels_from_the_widest_to_the_one_next_to_the_node() -> None:
    fabric = "fabric.topograph.run/tier-{}".format
    domain = "accelerator.topograph.run/domain"
    labels = [{fabric(0): f"leaf{i // 2}", fabric(1): f"spine{i // 4}", domain: f"nvl{i}"} for i in range(8)]
    found = cluster_of(as_node(node(f"n{i}", labels=each)) for i, each in enumerate(labels))
    assert found.levels == (fabric(1), fabric(0), domain, "node")
    assert found.nodes[5].path == ("spine1", "leaf2", "nvl5")


def test_taints_keep_their_meaning_and_those_of_health_are_health() -> None:
    taints = [
        {"key": "gpu", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
    ]
    tainted = as_node(node("n0", taints=taints))
    assert cluster_of([tainted]).nodes[0].taints == (Taint("gpu", NO_VALUE, "NoSchedule"),)
    assert health_of(tainted) == (Health.SUSPECT, "unreachable")


def test_a_cordoned_node_drains_and_one_that_is_not_ready_is_suspect() -> None:
    assert health_of(as_node(node("n0"))) == (Health.HEALTHY, "")
    assert health_of(as_node(node("n0", unschedulable=True))) == (Health.DRAINING, "cordoned")
    written = node("n0")
    written["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]
    assert health_of(as_node(written)) == (Health.SUSPECT, "NodeStatusUnknown")


def test_a_node_drains_while_node_problem_detector_sees_a_problem_with_which_pods_would_fail() -> None:
    def seen(**problem: str) -> tuple[Health, str]:
        written = node("n0")
        written["status"]["conditions"] = [{"type": "Ready", "status": "True"}, problem]
        return health_of(as_node(written))

    assert seen(type="KernelDeadlock", status="True", reason="DockerHung") == (
        Health.DRAINING,
        "KernelDeadlock: DockerHung",
    )
    assert seen(type="KernelDeadlock", status="False", reason="KernelHasNoDeadlock") == (Health.HEALTHY, "")
    assert seen(type="FrequentContainerdRestart", status="True") == (Health.HEALTHY, "")


@pytest.mark.parametrize(
    ("operator", "values", "is_met"),
    [
        ("In", ["a", "b"], True),
        ("In", ["b"], False),
        ("NotIn", ["a"], False),
        ("NotIn", ["b"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("Gt", ["1"], False),
        ("Nonsense", ["a"], False),
    ],
)
def test_a_required_affinity_is_met_by_labels(operator: str, values: list[str] | None, is_met: bool) -> None:
    written = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]}
    assert meets(msgspec.convert(written, NodeSelector), as_node(node("n0", labels={"k": "a"}))) is is_met


def test_numbers_compare_as_numbers_and_a_term_that_says_nothing_is_met_by_no_node() -> None:
    ten = as_node(node("n0", labels={"k": "10"}))
    greater = {"nodeSelectorTerms": [{}, {"matchExpressions": [{"key": "k", "operator": "Gt", "values": ["9"]}]}]}
    assert meets(msgspec.convert(greater, NodeSelector), ten)
    assert not meets(msgspec.convert({"nodeSelectorTerms": [{}]}, NodeSelector), ten)


def test_a_pod_with_an_affinity_selects_the_label_of_the_nodes_that_meet_it() -> None:
    required = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    wanting = pod("p", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    affinity = affinity_of(as_pod(wanting))
    assert affinity is not None
    found = cluster_of([as_node(node("a")), as_node(node("b"))], [affinity])
    label = (affinity_label(affinity), "yes")
    assert [label in each.labels for each in found.nodes] == [True, False]
    assert job(wanting).node_selector == (label,)


def test_a_gang_has_a_role_for_the_pods_that_ask_for_the_same() -> None:
    found = job(pod("a", 8), pod("launcher", 0), pod("b", 8))
    assert [(role.name, role.replicas_min, role.task.gpus) for role in found.gang.roles] == [
        ("pods", 2, 8),
        ("pods-1", 1, 0),
    ]


def test_priority_grace_and_tolerations_of_a_pod_are_those_of_its_job() -> None:
    tolerations = [{"key": "gpu", "operator": "Exists"}, {"key": "team", "effect": "NoSchedule"}]
    found = job(pod("a", priority=7, tolerations=tolerations, terminationGracePeriodSeconds=90), topology="zone")
    assert (found.priority, found.grace_ms) == (7, 90_000)
    assert found.tolerations == (Toleration("gpu"), Toleration("team", NO_VALUE, "NoSchedule"))
    assert found.gang.topology == Topology(required="zone")


def test_where_nodes_have_gpus_of_two_vendors_a_pod_gets_those_it_asks_for() -> None:
    types = {"amd.com/gpu": ("MI300X",), "nvidia.com/gpu": ("H100", "H200")}
    assert job(pod("a"), gpu_types=types).gang.roles[0].task.gpu_types == ("H100", "H200")


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
    ],
)
def test_a_pod_that_asks_for_what_is_not_looked_at_is_refused_with_what_that_is(
    spec: dict[str, Any], what: str
) -> None:
    with pytest.raises(RefusedError, match=what):
        job(pod("a", **spec))


def test_pods_of_one_gang_for_different_nodes_are_roles_with_selectors_of_their_own() -> None:
    made = job(pod("a"), pod("b", nodeSelector={"disk": "ssd"}), pod("c"))
    assert (made.node_selector, made.tolerations) == ((), ())
    assert [(role.replicas_min, role.task.node_selector) for role in made.gang.roles] == [
        (2, ()),
        (1, (("disk", "ssd"),)),
    ]


def test_what_pods_of_one_gang_select_alike_is_said_of_the_job() -> None:
    made = job(*(pod(name, nodeSelector={"disk": "ssd"}) for name in "ab"))
    assert made.node_selector == (("disk", "ssd"),)
    assert [role.task.node_selector for role in made.gang.roles] == [()]


def test_a_pod_says_its_group_in_any_of_three_dialects() -> None:
    native = as_pod(pod("a", schedulingGroup={"podGroupName": "g"}))
    assert group_of(native) == GroupRef(NATIVE, "default", "g")
    assert group_of(as_pod(pod("a", group="g"))) == GroupRef(PLUGINS, "default", "g")
    written = pod("a")
    written["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}
    assert group_of(as_pod(written)) == GroupRef(VOLCANO, "default", "g")
    assert group_of(as_pod(pod("a"))) is None


def test_a_group_says_how_many_start_together_and_in_which_domain() -> None:
    assert as_group({"metadata": {"name": "g"}, "spec": {"minMember": 4}}).least == 4
    native = as_group(
        {
            "metadata": {"name": "g"},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"topology": [{"key": "zone"}]},
            },
        }
    )
    assert (native.least, topology_of(native)) == (3, "zone")
    assert as_group({"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}}).least == 0


def test_fields_that_scheduling_does_not_read_are_dropped_on_receipt() -> None:
    written = {**pod("a"), "status": {"phase": "Pending"}}
    written["metadata"] = {**written["metadata"], "managedFields": [{"manager": "kubectl"}]}
    assert b"managedFields" not in msgspec.json.encode(msgspec.convert(written, Pod))
    assert b"capacity" not in msgspec.json.encode(msgspec.convert(node("n"), KubeNode))


@pytest.mark.parametrize(
    ("annotations", "spec", "what"),
    [
        ({"phalanx.dev/save": "8080"}, {}, "expected a port and a path such as :8080/save, got '8080'"),
        ({"phalanx.dev/save": ":99999/"}, {}, "expected a port and a path"),
        ({"phalanx.dev/save": ":80", "phalanx.dev/save-within": "1h"}, {}, "expected 1 to 3600 seconds, got '1h'"),
        ({"phalanx.dev/save": ":80"}, {"hostNetwork": True}, "expected a pod with an address of its own"),
    ],
)
def test_how_a_pod_saves_is_checked_before_it_is_bound(
    annotations: dict[str, str], spec: dict[str, Any], what: str
) -> None:
    written = pod("p", **spec)
    written["metadata"]["annotations"] = annotations
    with pytest.raises(RefusedError, match=what):
        job(written)


def test_the_grace_of_a_gang_holds_the_time_in_which_it_saves() -> None:
    written = pod("p")
    written["metadata"]["annotations"] = {"phalanx.dev/save": ":80/save", "phalanx.dev/save-within": "120"}
    assert job(written, pod("q")).grace_ms == 121_000
