"""`phalanx kube` against a real API server."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kube_cluster import BUDGETS, NATIVE_GROUPS, KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import POD_PATH, create_priority, events, gang, nodes_of, phalanx, pods, reason, scheduling, verb
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def test_a_gang_is_bound_whole_and_its_pods_run(api: Client, cluster: KubeCluster) -> None:
    create(api, *(node(f"n{i}") for i in range(4)), *gang("g", 4))
    with scheduling(cluster):
        wait_for("four pods run", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 4)
    assert sorted(nodes_of(api).values()) == ["n0", "n1", "n2", "n3"]


def test_a_native_gang_is_bound_whole(api: Client, cluster: KubeCluster) -> None:
    native = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "native", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    create(api, node("n0"), node("n1"), native)
    with scheduling(cluster):
        create(api, pod("a", 8, schedulingGroup={"podGroupName": "native"}))
        wait_for("the first waits for the second", lambda: "2 pods of PodGroup default/native" in reason(api, "a"))
        wait_for("so does its group", lambda: "2 pods" in group_condition(api, "native").get("message", ""))
        create(api, pod("b", 8, schedulingGroup={"podGroupName": "native"}))
        wait_for("both are bound", lambda: len(nodes_of(api)) == 2)
        wait_for("its group says so", lambda: group_condition(api, "native").get("status") == "True")


def test_a_gang_that_does_not_fit_stays_unbound_and_says_why(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("large", 3), pod("small", 4))
    with scheduling(cluster):
        wait_for("the small one is bound", lambda: "small" in nodes_of(api))
        wait_for("the gang says why", lambda: "no part of this cluster could ever hold it" in reason(api, "large-2"))
        wait_for("so does an event", lambda: any("no part" in each for each in events(api, "large-0")))
        wait_for("and one of its group", lambda: any("no part" in each for each in events(api, "large")))
    assert list(nodes_of(api)) == ["small"]


def test_oversubscribed_gangs_are_each_bound_whole_or_not_at_all(api: Client, cluster: KubeCluster) -> None:
    waves = [gang(f"g{i}", 2) for i in range(5)]
    create(api, *(node(f"n{i}") for i in range(4)))
    with scheduling(cluster):
        # The members of all gangs come in turns, so that a scheduler of single pods would bind parts of each.
        create(api, *(each for members in zip(*waves, strict=True) for each in members))
        wait_for("two gangs are bound", lambda: len(nodes_of(api)) == 4)
        wait_for("the others say why", lambda: sum(bool(reason(api, name)) for name in pods(api)) == 6)
    bound = sorted(name.partition("-")[0] for name in nodes_of(api))
    assert bound[0] == bound[1] != bound[2] == bound[3]


def test_a_more_important_pod_has_a_whole_gang_evicted(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("low", 2))
    with scheduling(cluster):
        wait_for("the gang runs", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 2)
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the urgent pod is alone", lambda: list(nodes_of(api)) == ["urgent"])
        wait_for("an event says so", lambda: any("preempted" in each for each in events(api, "low-1")))


def test_a_disruption_budget_keeps_a_gang_from_being_evicted_in_part(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("low", 2))
    with scheduling(cluster):
        wait_for("the gang runs", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 2)
        # No controller counts here, so the budget allows nothing.
        api.post(BUDGETS, budget("keep", "low", minAvailable=1))
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for(
            "it names the budget", lambda: "default/keep allows 0 of 2 pods to be evicted" in reason(api, "urgent")
        )
        assert sorted(nodes_of(api)) == ["low-0", "low-1"]
        api.delete(f"{BUDGETS}/keep")
        wait_for("the gang is evicted whole", lambda: list(nodes_of(api)) == ["urgent"])


def test_a_budget_that_allows_one_pod_of_a_gang_keeps_all_of_it(api: Client, cluster: KubeCluster) -> None:
    """Each pod could be evicted by itself, and the second could not after the first."""
    create(api, node("n0"), node("n1"), *gang("low", 2))
    with scheduling(cluster):
        wait_for("the gang runs", lambda: [each.status.phase for each in pods(api).values()] == ["Running"] * 2)
        api.post(BUDGETS, budget("keep", "low", minAvailable=1))
        allow(api, "keep", 1)
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for(
            "it names the budget", lambda: "default/keep allows 1 of 2 pods to be evicted" in reason(api, "urgent")
        )
        assert sorted(nodes_of(api)) == ["low-0", "low-1"]
        allow(api, "keep", 2)
        wait_for("the gang is evicted whole", lambda: list(nodes_of(api)) == ["urgent"])


def test_of_two_gangs_the_one_without_a_budget_is_evicted(api: Client, cluster: KubeCluster) -> None:
    """The kept gang is the younger one, and would be the cheaper victim."""
    create(api, node("n0"), node("n1"), *gang("free", 1))
    api.post(BUDGETS, budget("keep", "kept", maxUnavailable=0))
    with scheduling(cluster):
        wait_for("the first gang runs", lambda: len(nodes_of(api)) == 1)
        create(api, *gang("kept", 1))
        wait_for("both gangs run", lambda: len(nodes_of(api)) == 2)
        create_priority(api, "urgent", 1000)
        create(api, pod("urgent", 8, priorityClassName="urgent"))
        wait_for("the free one is evicted", lambda: sorted(nodes_of(api)) == ["kept-0", "urgent"])


def group_condition(api: Client, name: str) -> dict[str, Any]:
    """The condition of a native PodGroup."""
    conditions = api.get(f"{NATIVE_GROUPS}/{name}", dict[str, Any]).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "PodGroupInitiallyScheduled"), {})


def budget(name: str, group: str, **spec: Any) -> dict[str, Any]:
    """A disruption budget for the pods of a group."""
    selector = {"matchLabels": {"scheduling.x-k8s.io/pod-group": group}}
    metadata = {"name": name, "namespace": "default"}
    spec = {"selector": selector, **spec}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def allow(api: Client, name: str, count: int) -> None:
    """Counts as the controller of budgets would."""
    status = {"disruptionsAllowed": count, "currentHealthy": 2, "desiredHealthy": 0, "expectedPods": 2}
    generation = api.get(f"{BUDGETS}/{name}", dict[str, Any])["metadata"]["generation"]
    body = {"status": {**status, "observedGeneration": generation}}
    api.patch(f"{BUDGETS}/{name}/status", body, "merge-patch")


def test_pods_of_other_schedulers_are_counted(api: Client, cluster: KubeCluster) -> None:
    theirs = pod("theirs", 4, schedulerName="default-scheduler", nodeName="n0")
    create(api, node("n0"), theirs, pod("ours", 8))
    with scheduling(cluster):
        wait_for("ours waits", lambda: "4 are free" in reason(api, "ours") or "GPU" in reason(api, "ours"))
        assert "ours" not in nodes_of(api)
        api.delete(f"{POD_PATH}/theirs", {"gracePeriodSeconds": 0})
        wait_for("ours is bound", lambda: nodes_of(api).get("ours") == "n0")


def test_a_gang_is_undone_whole_when_a_node_goes_between_plan_and_bind(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"))
    with scheduling(cluster) as run:
        bind = run.binder.bind

        def bind_late(*arguments: Any) -> None:
            api.delete("/api/v1/nodes/n1")
            bind(*arguments)

        run.binder.bind = bind_late  # type: ignore[method-assign, assignment]
        create(api, *gang("g", 2))
        wait_for("no pod of the gang is left", lambda: not pods(api))


def test_a_gang_is_undone_whole_when_one_pod_cannot_be_bound(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"))
    with scheduling(cluster) as run:
        bind = run.binder.bind

        def bind_late(*arguments: Any) -> None:
            api.delete(f"{POD_PATH}/g-1", {"gracePeriodSeconds": 0})
            bind(*arguments)

        run.binder.bind = bind_late  # type: ignore[method-assign, assignment]
        create(api, *gang("g", 2))
        wait_for("its other pod is deleted too", lambda: not pods(api))


def test_a_scheduler_that_starts_again_goes_on_with_what_is_bound(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("g", 2, 4))
    with scheduling(cluster):
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
    before = nodes_of(api)
    create(api, pod("next", 8))
    with scheduling(cluster):
        wait_for("the next says why or runs", lambda: bool(reason(api, "next")) or "next" in nodes_of(api))
        assert {name: where for name, where in nodes_of(api).items() if name != "next"} == before


def test_half_a_gang_that_a_killed_scheduler_left_is_released(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), node("n1"), *gang("g", 2))
    binding = {"metadata": {"name": "g-0"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"}}
    api.post(f"{POD_PATH}/g-0/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    with scheduling(cluster):
        wait_for("the bound half is released", lambda: list(pods(api)) == ["g-1"])
        create(api, pod("g-0", 8, "g"))
        wait_for("the whole gang is bound", lambda: len(nodes_of(api)) == 2)


def test_the_verb_schedules_until_it_is_told_to_end_and_survives_a_kill(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    create(api, node("n0"), node("n1"), *gang("g", 2))
    journal = tmp_path / "journal"
    with verb(cluster, "--journal", str(journal)) as process:
        wait_for("the gang is bound", lambda: len(nodes_of(api)) == 2)
        process.kill()
    with verb(cluster) as process:
        create(api, pod("next", 8))
        wait_for("it knows that both nodes are full", lambda: "GPU" in reason(api, "next"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    verified = phalanx("replay", "--verify", str(journal), "-o", "json")
    assert msgspec.json.decode(verified.stdout)["verified"] is True


def test_the_verb_ends_with_what_the_server_says_to_a_stranger(cluster: KubeCluster, tmp_path: Path) -> None:
    cluster.write_kubeconfig(tmp_path / "stranger", "wrong")
    cluster.write_kubeconfig(tmp_path / "weak", "weak")
    refused = phalanx("kube", "--kubeconfig", str(tmp_path / "stranger"), check=False)
    assert refused.returncode == 1
    assert b"401: Unauthorized" in refused.stderr
    refused = phalanx("kube", "--kubeconfig", str(tmp_path / "weak"), check=False)
    assert refused.returncode == 1
    assert b'is forbidden: User "weak" cannot' in refused.stderr


def test_other_verbs_read_the_journal_of_a_scheduler_that_was_killed(
    api: Client, cluster: KubeCluster, tmp_path: Path
) -> None:
    create(api, node("n0"))
    journal = tmp_path / "journal"
    with verb(cluster, "--journal", str(journal)) as process:
        assert process.stderr is not None
        assert b"scheduling" in process.stderr.readline()
        create(api, pod("first", 8))
        wait_for("the first is bound", lambda: "first" in nodes_of(api))
        create(api, pod("second", 8))
        wait_for("the second says why", lambda: "8 GPUs" in reason(api, "second"))
        process.kill()
    told = json.loads(phalanx("why", "default/second", "--state", str(journal), "-o", "json").stdout)
    assert "8 GPUs" in told["why"]
    futures = json.loads(phalanx("what-if", "--add-nodes", "1", "--state", str(journal), "-o", "json").stdout)
    assert [futures[each]["started"] for each in ("as_it_is", "what_if")] == [1, 2]
    assert phalanx("replay", "--verify", str(journal)).returncode == 0
