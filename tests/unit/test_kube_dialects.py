"""Gangs in the dialects of KAI and Kueue."""

from __future__ import annotations

from typing import Any

import pytest

from kube_objects import as_group, as_pod, group, node, pod
from kube_turns import Site
from phalanx.kube.api.reflector import Changed
from phalanx.kube.gangs.groups import KAI
from phalanx.kube.mirror import PODS
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
