"""Pods of other schedulers that may make way, where the operator says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_objects import as_pod, group, node, pod
from kube_turns import Site
from phalanx.kube.api.reflector import Changed
from phalanx.kube.binder import Evicted
from phalanx.kube.gangs.discovery import QUEUES
from phalanx.kube.mirror import BUDGETS, NODES, PODS
from phalanx.kube.objects.budget import DisruptionBudget
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.objects.queue import VolcanoQueue


def theirs(name: str, where: str, gpus: int = 8, priority: int = -10, **metadata: Any) -> Pod:
    """A pod of another scheduler that runs."""
    written = pod(name, gpus, schedulerName="default-scheduler", priority=priority)
    written["metadata"].update(metadata)
    return as_pod(written, node=where, phase="Running")


def ours(name: str, gpus: int = 8, priority: int = 0) -> Pod:
    return as_pod(pod(name, gpus, priority=priority))


def evicted(site: Site) -> list[str]:
    return [name for _, _, names, _ in site.asked.evictions for name in names]


def leave(site: Site, *pods: Pod) -> None:
    """The pods that were asked to go are gone."""
    for job, attempt, *_ in site.asked.evictions[-len(pods) :]:
        site.scheduler.answer(Evicted(job, attempt))
    site.say(*pods, gone=True)


def test_without_the_option_no_pod_of_another_scheduler_is_evicted() -> None:
    site = Site(1, [theirs("t", "n0"), ours("p", priority=1000)])
    assert (evicted(site), site.asked.binds) == ([], [])


def test_pods_of_a_lower_priority_make_way_for_a_gang() -> None:
    site = Site(2, [theirs("t0", "n0"), theirs("t1", "n1")], [group("g", 2)], others_below=0)
    site.say(*(as_pod(pod(f"g{i}", 8, "g")) for i in range(2)))
    assert sorted(evicted(site)) == ["t0", "t1"]
    assert site.asked.binds == []
    leave(site, theirs("t0", "n0"), theirs("t1", "n1"))
    assert [sorted(places) for _, _, places in site.asked.binds] == [["g0", "g1"]]


def test_no_more_of_them_make_way_than_are_needed() -> None:
    site = Site(2, [theirs("t0", "n0"), theirs("t1", "n1"), ours("p")], others_below=0)
    assert len(evicted(site)) == 1


def test_a_pod_that_waits_already_does_not_take_what_they_hold() -> None:
    """It comes to be known as one that may make way only after the pod that waits."""
    site = Site(1, [ours("p", 16)], others_below=0)
    site.say(ours("q", priority=-20), theirs("t", "n0"))
    assert (evicted(site), site.asked.binds) == ([], [])
    assert site.asked.lines["q"].startswith("it needs 8 GPUs and 0 are free")


def test_a_pod_that_waits_is_not_bound_where_one_of_a_lower_priority_was_bound_meanwhile() -> None:
    """The one before that ends, and the next one is bound, between two looks at the node."""
    before = theirs("before", "n0", priority=100)
    site = Site(1, [before, ours("p")], others_below=0)
    site.mirror.take(Changed(PODS, before, gone=True))
    site.say(theirs("t", "n0"))
    assert (evicted(site), site.asked.binds) == (["t"], [])


@pytest.mark.parametrize(
    "stays",
    [
        theirs("t", "n0", priority=0),
        theirs("t", "n0", ownerReferences=[{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]),
        theirs("t", "n0", annotations={"kubernetes.io/config.mirror": "m"}),
    ],
)
def test_pods_of_the_bound_and_of_daemon_sets_and_kubelets_stay(stays: Pod) -> None:
    site = Site(1, [stays, ours("p", priority=1000)], others_below=0)
    assert (evicted(site), site.asked.binds) == ([], [])


def test_a_pod_of_no_lower_priority_than_the_one_that_waits_stays() -> None:
    site = Site(1, [theirs("t", "n0", priority=-10), ours("p", priority=-10)], others_below=0)
    assert (evicted(site), site.asked.binds) == ([], [])


def test_one_that_ends_by_itself_makes_room() -> None:
    there = theirs("t", "n0", priority=-10)
    site = Site(1, [there, ours("p", priority=-10)], others_below=0)
    site.say(msgspec.structs.replace(there, status=msgspec.structs.replace(there.status, phase="Succeeded")))
    assert (evicted(site), len(site.asked.binds)) == ([], 1)


def test_a_disruption_budget_keeps_them() -> None:
    site = Site(1, [theirs("t", "n0", labels={"app": "t"})], others_below=0)
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "t"}}}}
    site.mirror.take(Changed(BUDGETS, msgspec.convert({**budget, "status": {}}, DisruptionBudget)))
    site.say(ours("p"))
    assert evicted(site) == []
    assert "PodDisruptionBudget default/b allows 0 of 1 pods" in site.asked.lines["p"]


def test_what_runs_beyond_what_its_node_has_is_foreign_use() -> None:
    """Another scheduler bound more than fits: nothing of it is known as a job, and nothing is evicted in a circle."""
    site = Site(1, [theirs("t0", "n0", 8), theirs("t1", "n0", 8)], others_below=0)
    site.say(ours("p"))
    assert len(evicted(site)) <= 1
    assert site.asked.binds == []


def test_a_pod_on_a_node_that_is_deleted_is_not_touched() -> None:
    site = Site(2, [theirs("t", "n0")], others_below=0)
    site.mirror.take(Changed(NODES, msgspec.convert(node("n0"), KubeNode), gone=True))
    site.turn()
    assert (site.asked.evictions, site.asked.deleted) == ([], [])
    site.say(ours("p"))
    assert len(site.asked.binds) == 1


def test_they_are_known_after_a_restart() -> None:
    """A scheduler that starts finds pods of both, and evicts the one for the other."""
    running = as_pod(pod("mine", 8), node="n1", phase="Running")
    site = Site(2, [theirs("t", "n0"), running], others_below=0)
    site.say(ours("p", priority=5))
    assert evicted(site) == ["t"]


def test_what_a_queue_deserves_takes_nothing_from_pods_of_a_higher_priority() -> None:
    queue = {"metadata": {"name": "q"}, "spec": {"deserved": {"nvidia.com/gpu": "8"}}}
    deserving = group("g", 1)
    deserving["spec"]["queue"] = "q"
    site = Site(1, [theirs("t", "n0", priority=-10)], [deserving], others_below=0)
    site.mirror.take(Changed(QUEUES, msgspec.convert(queue, VolcanoQueue)))
    site.say(as_pod(pod("g0", 8, "g", priority=-20)))
    assert evicted(site) == []
    assert "pods of another scheduler whose priority is no lower" in site.asked.lines["g0"]


def test_a_pod_that_cannot_be_known_counts_as_used_in_the_same_turn() -> None:
    """More runs on the node than it has: what of it is known as no job is not given to the pod that waits."""
    site = Site(1, [theirs("t0", "n0", 6), theirs("t1", "n0", 6)], others_below=0)
    site.say(ours("p", 3, priority=-10))
    assert (evicted(site), site.asked.binds) == ([], [])
    tries = site.journal.getvalue().count(b'"JobHeld"')
    site.say(theirs("elsewhere", "n9"))
    assert site.journal.getvalue().count(b'"JobHeld"') == tries
