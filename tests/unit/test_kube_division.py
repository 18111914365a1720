"""Sub-groups of a Volcano PodGroup: which pods start and lie together, and how the engine is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kube_objects import as_node, as_pod, node, pod
from phalanx.kube.engine import Engine
from phalanx.kube.gangs.bundle import Bundle, RefusedError, job_of, places_of
from phalanx.kube.gangs.forming import Formed, form
from phalanx.kube.gangs.groups import VOLCANO, GroupRef
from phalanx.kube.gangs.sub_groups import Placed
from phalanx.kube.nodes import cluster_of
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.hyper_node import HyperNode
from phalanx.kube.objects.pod import Pod
from phalanx.kube.tiers import labelled, labels_by_node, tier_labels
from phalanx.protocol.action import Start
from phalanx.protocol.event import JobSubmitted

FAMILY = GroupRef(VOLCANO, "default", "v")
GPU_TYPES = {"nvidia.com/gpu": ("nvidia.com/gpu",)}
TIER_1 = "volcano.sh/tier-1"


def group(size: int = 2, mode: str = "hard", tier: int = 1, **spec: Any) -> PodGroup:
    """A group whose sub-groups are told apart by the label `shard`."""
    policy = {
        "name": "tp",
        "subGroupSize": size,
        "minSubGroups": spec.pop("minSubGroups", 0),
        "matchLabelKeys": ["shard"],
        "labelSelector": spec.pop("labelSelector", None),
        "networkTopology": {"mode": mode, "highestTierAllowed": tier},
    }
    return msgspec.convert({"metadata": {"name": "v"}, "spec": {"subGroupPolicy": [policy], **spec}}, PodGroup)


def member(name: str, gpus: int = 8, **labels: str) -> Pod:
    written = pod(name, gpus)
    written["metadata"]["labels"] = labels
    return as_pod(written)


def formed(of: PodGroup, *pods: Pod, placed: Placed | None = None) -> Formed:
    return form(FAMILY, of, pods, placed or Placed(), is_pending=False)


def names(bundle: Bundle) -> list[str]:
    return [each.metadata.name for each in bundle.pods]


def shards(count: int, size: int = 2, gpus: int = 8) -> list[Pod]:
    return [member(f"p-{shard}-{i}", gpus, shard=str(shard)) for shard in range(count) for i in range(size)]


def engine_of(hyper_nodes: Mapping[str, tuple[int, tuple[str, ...]]], nodes: int) -> Engine:
    """A cluster with some HyperNodes: the tier of each and what belongs to it."""
    written = [
        {
            "metadata": {"name": name},
            "spec": {
                "tier": tier,
                "members": [
                    {
                        "type": "Node" if each.startswith("n") else "HyperNode",
                        "selector": {"exactMatch": {"name": each}},
                    }
                    for each in members
                ],
            },
        }
        for name, (tier, members) in hyper_nodes.items()
    ]
    them = [msgspec.convert(each, HyperNode) for each in written]
    known = {f"n{i}": as_node(node(f"n{i}")) for i in range(nodes)}
    tiers = tier_labels(them)
    by_node = labels_by_node(them, known, tiers)
    return Engine(cluster_of((labelled(each, by_node.get(name)) for name, each in known.items()), (), tiers), "fifo", 1)


PAIRS = {"s0": (1, ("n0", "n1")), "s1": (1, ("n2", "n3"))}


def placed_by(engine: Engine, bundle: Bundle) -> dict[str, str]:
    engine.take((JobSubmitted(job_of(bundle, GPU_TYPES)),), 1)
    starts = [each for each in engine.decide(1)[0].actions if isinstance(each, Start)]
    return {each.metadata.name: name for start in starts for each, name in places_of(bundle, start.placement)}


def test_sub_groups_are_replicas_that_each_lie_in_one_domain() -> None:
    (bundle,) = formed(group(minMember=4), *shards(2)).bundles
    (role,) = job_of(bundle, GPU_TYPES).gang.roles
    assert (role.replicas_min, role.replicas_max, role.topology.required) == (2, 2, TIER_1)
    assert [each.replicas_min for each in role.members] == [2]


def test_each_sub_group_is_placed_in_a_hyper_node_of_its_own_choice() -> None:
    """Pods of two sub-groups come in turn, so that an order by pods alone would mix them up."""
    first, second = shards(2)[:2], shards(2)[2:]
    (bundle,) = formed(group(minMember=4), first[0], second[0], first[1], second[1]).bundles
    where = placed_by(engine_of(PAIRS, 4), bundle)
    assert len(where) == 4
    switch = {"n0": "s0", "n1": "s0", "n2": "s1", "n3": "s1"}
    assert switch[where["p-0-0"]] == switch[where["p-0-1"]] != switch[where["p-1-0"]] == switch[where["p-1-1"]]


def test_without_a_domain_for_one_of_its_sub_groups_nothing_of_a_gang_is_placed() -> None:
    (bundle,) = formed(group(minMember=4), *shards(2)).bundles
    assert placed_by(engine_of({"s0": (1, ("n0", "n1")), "s1": (1, ("n2",)), "s2": (1, ("n3",))}, 4), bundle) == {}


def test_a_topology_of_the_group_holds_beside_those_of_its_sub_groups() -> None:
    """Two pairs are free, but below two spines."""
    of = group(minMember=4, networkTopology={"mode": "hard", "highestTierAllowed": 2})
    (bundle,) = formed(of, *shards(2)).bundles
    apart = {**PAIRS, "t0": (2, ("s0",)), "t1": (2, ("s1",))}
    assert placed_by(engine_of(apart, 4), bundle) == {}
    assert len(placed_by(engine_of({**PAIRS, "t0": (2, ("s0", "s1"))}, 4), bundle)) == 4


def test_sub_groups_that_ask_for_different_things_are_different_roles() -> None:
    large, small = shards(1), [member(f"q-{i}", 4, shard="9") for i in range(2)]
    (bundle,) = formed(group(minMember=4), *large, *small).bundles
    assert len(job_of(bundle, GPU_TYPES).gang.roles) == 2
    assert len(placed_by(engine_of(PAIRS, 4), bundle)) == 4


def test_a_pod_of_no_sub_group_starts_with_them_anywhere() -> None:
    of = group(minMember=3, labelSelector={"matchLabels": {"role": "worker"}})
    workers = [member(f"w-{i}", shard="0", role="worker") for i in range(2)]
    (bundle,) = formed(of, member("driver", shard="0"), *workers).bundles
    assert [len(part.pods) for part in bundle.parts] == [2]
    assert sorted(placed_by(engine_of({"s0": (1, ("n0", "n1"))}, 3), bundle)) == ["driver", "w-0", "w-1"]


def test_as_many_whole_sub_groups_start_as_must() -> None:
    """The third sub-group is there, and starts by itself as a whole once the gang is placed."""
    of, pods = group(minSubGroups=2), shards(3)
    first = formed(of, *pods)
    assert [names(each) for each in first.bundles] == [["p-0-0", "p-0-1", "p-1-0", "p-1-1"]]
    assert "it starts after the 4 pods" in first.waiting[0][1]
    later = formed(of, *pods[4:], placed=Placed(tuple((each, "n0") for each in pods[:4])))
    assert [names(each) for each in later.bundles] == [["p-2-0", "p-2-1"]]


def test_a_sub_group_that_is_not_whole_is_waited_for_by_name() -> None:
    found = formed(group(minMember=3, minSubGroups=1), *shards(1), member("p-1-0", shard="1"))
    assert not found.bundles
    assert "2 pods of sub-group tp/1 start together, and 1 are there" in found.waiting[0][1]


def test_too_few_sub_groups_are_waited_for_with_how_many_there_are() -> None:
    """There are pods enough, but three of them are of no sub-group."""
    found = formed(group(minMember=4, minSubGroups=2), *shards(1), *(member(f"x-{i}") for i in range(3)))
    assert not found.bundles
    assert "1 of 2 of tp" in found.waiting[0][1]


def test_a_pod_that_comes_for_one_of_a_sub_group_that_runs_goes_where_that_is() -> None:
    first, second = shards(1)
    beside = Placed(((first, "n2"),), lambda name: {TIER_1: "s1"} if name == "n2" else {})
    (bundle,) = formed(group(minMember=2), second, placed=beside).bundles
    assert placed_by(engine_of(PAIRS, 4), bundle)["p-0-1"] in ("n2", "n3")
    nowhere = Placed(((first, "n2"),), lambda name: {})
    (bundle,) = formed(group(minMember=2), second, placed=nowhere).bundles
    with pytest.raises(RefusedError, match=f"on a node that has no {TIER_1}"):
        job_of(bundle, GPU_TYPES)


def test_a_pod_beyond_its_group_lies_in_the_domain_of_that() -> None:
    topology = {"mode": "hard", "highestTierAllowed": 1}
    of = msgspec.convert({"spec": {"minMember": 1, "networkTopology": topology}}, PodGroup)
    (bundle,) = formed(of, member("b"), placed=Placed(((member("a"), "n2"),), lambda name: {TIER_1: "s1"})).bundles
    assert placed_by(engine_of(PAIRS, 4), bundle)["b"] in ("n2", "n3")


def test_sub_groups_whose_topology_is_soft_start_together_and_lie_anywhere() -> None:
    (bundle,) = formed(group(mode="soft", minSubGroups=1), *shards(1)).bundles
    assert names(bundle) == ["p-0-0", "p-0-1"]
    assert not bundle.parts


@pytest.mark.parametrize("where", ["networkTopology", "subGroupPolicy.networkTopology"])
def test_a_tier_by_its_name_is_refused_by_the_field(where: str) -> None:
    by_name = {"mode": "hard", "highestTierName": "rack"}
    spec = (
        {"networkTopology": by_name}
        if where == "networkTopology"
        else {"subGroupPolicy": [{"networkTopology": by_name}]}
    )
    found = formed(msgspec.convert({"spec": spec}, PodGroup), *shards(1))
    assert f"spec.{where}.highestTierName" in found.waiting[0][1]


def test_a_tier_that_there_is_not_stands_for_the_next_below() -> None:
    """A group that may cross tier 3 lies in one HyperNode of tier 2, where there is no higher one."""
    exact = {"type": "Node", "selector": {"regexMatch": {"pattern": "."}}}
    top = msgspec.convert({"metadata": {"name": "top"}, "spec": {"tier": 2, "members": [exact]}}, HyperNode)
    tiers = tier_labels([top], ["volcano.sh/tier-3", "volcano.sh/tier-x", "zone"])
    assert tiers == ("volcano.sh/tier-3", "volcano.sh/tier-2")
    assert labels_by_node([top], {"n0": as_node(node("n0"))}, tiers) == {"n0": dict.fromkeys(tiers, "top")}
