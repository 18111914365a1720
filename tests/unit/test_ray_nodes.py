"""Ray's nodes as a cluster of phalanx, and which Ray can be used."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.backends.capability import Capability
from phalanx.backends.ray import offer
from phalanx.backends.ray.nodes import NoCluster, cluster_from
from phalanx.backends.ray.objects import weights


def node(host: str, gpus: int = 8, alive: bool = True) -> dict[str, Any]:
    """A node as Ray tells of it."""
    resources = {"CPU": 64.0, "memory": 2.0**40, "object_store_memory": 1e9} | ({"GPU": float(gpus)} if gpus else {})
    return {"NodeID": host * 4, "Alive": alive, "NodeManagerHostname": host, "Labels": {}, "Resources": resources}


def test_nodes_have_their_host_names_or_the_names_that_they_were_given() -> None:
    told = [node("h1"), node("h2")]
    told[1]["Labels"] = {"phalanx.dev/node": "rack1-a"}
    found = cluster_from(told).nodes
    assert [each.name for each in found] == ["h1", "rack1-a"]
    assert (found[0].gpus, found[0].cpus_milli, found[0].memory_mb) == (8, 64_000, 1 << 20)


def test_the_type_of_gpus_is_that_of_the_label_or_of_the_resource() -> None:
    told = [node("h1"), node("h2")]
    told[0]["Labels"] = {"ray.io/accelerator-type": "A100"}
    told[1]["Resources"]["accelerator_type:H100"] = 1.0
    assert [each.gpu_type for each in cluster_from(told).nodes] == ["A100", "H100"]
    assert cluster_from(told).nodes[1].gpu_memory_gb == 80.0


def test_regions_and_zones_are_levels_where_every_node_tells_them() -> None:
    told = [node("h1"), node("h2")]
    for each, zone in zip(told, ("b", "a"), strict=True):
        each["Labels"] = {"ray.io/availability-zone": zone, "ray.io/market-type": "spot"}
    cluster = cluster_from(told)
    assert cluster.levels == ("zone", "node")
    assert [(each.name, each.path, each.spot) for each in cluster.nodes] == [("h2", ("a",), True), ("h1", ("b",), True)]


def test_dead_nodes_and_those_where_nothing_can_run_are_left_out() -> None:
    head = node("head", 0)
    del head["Resources"]["CPU"]
    assert [each.name for each in cluster_from([head, node("h1"), node("h2", alive=False)]).nodes] == ["h1"]
    with pytest.raises(NoCluster, match="no node with CPUs or GPUs"):
        cluster_from([head])


def test_two_nodes_of_one_name_are_refused_with_what_to_do() -> None:
    with pytest.raises(NoCluster, match=r"several nodes named h1: start each with --labels=phalanx.dev/node=NAME"):
        cluster_from([node("h1"), node("h1")])


@pytest.mark.parametrize(("here", "is_fine"), [("2.48.0", False), ("2.49.0", True), ("2.60.0", True), ("3.0.0", False)])
def test_a_ray_that_cannot_do_it_lacks_everything_and_says_which_can(
    monkeypatch: pytest.MonkeyPatch, here: str, is_fine: bool
) -> None:
    monkeypatch.setattr(offer, "find_spec", lambda _: object())
    monkeypatch.setattr(offer, "version", lambda _: here)
    assert offer.ray_offer().can(Capability.RESIZE) is is_fine
    assert offer.why_not() == ("" if is_fine else f"Ray {here} is here; expected 2.49 or newer, before 3.0")


def test_without_ray_everything_is_missing_and_how_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offer, "find_spec", lambda _: None)
    assert "pip install ray" in offer.ray_offer().lacks[Capability.ADOPT]


def test_nodes_are_preferred_by_the_bytes_of_objects_that_they_hold() -> None:
    names = {"a": "n1", "b": "n2"}
    copies = [(["a", "b"], 300), (["a", "gone"], 700), ([], 50), (["b"], 0)]
    assert weights(copies, names) == {"phalanx/node=n1": 100, "phalanx/node=n2": 30}
    assert weights([(["gone"], 9)], names) == {}
    assert weights([(["a"], 10**9), (["b"], 1)], names) == {"phalanx/node=n1": 100}
