"""What pods prefer and do not require, between the watch and the engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kube_objects import as_pod, group, node, pod
from kube_turns import Site
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import verify
from phalanx.kube.objects.pod import Pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APART_FROM_NOISE = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "noisy"}}}
REQUIRED_APART = {"requiredDuringSchedulingIgnoredDuringExecution": [APART_FROM_NOISE]}


def nodes(count: int, zones: int = 1, gpus: int = 8) -> list[dict[str, Any]]:
    """Nodes n0, n1, … that lie in zones a, b, … in turn."""
    return [node(f"n{i}", gpus, labels={HOST: f"n{i}", ZONE: "abcdef"[i % zones]}) for i in range(count)]


def in_zone(zone: str, weight: int, operator: str = "In") -> dict[str, Any]:
    expression = {"key": ZONE, "operator": operator, "values": [zone]}
    return {"weight": weight, "preference": {"matchExpressions": [expression]}}


def of_nodes(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {PREFERRED: list(terms)}}


def of_pods(kind: str, key: str, weight: int = 100, **labels: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    return {kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}


def spread(key: str, **labels: str) -> list[dict[str, Any]]:
    selector = {"matchLabels": labels}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}]


def labelled(written: dict[str, Any], **labels: str) -> dict[str, Any]:
    written["metadata"]["labels"].update(labels)
    return written


def there(name: str, where: str, gpus: int = 1, **labels: str) -> Pod:
    """A pod of another scheduler that runs."""
    return as_pod(labelled(pod(name, gpus, schedulerName="other"), **labels), node=where, phase="Running")


def bound(site: Site) -> dict[str, str]:
    return {name: where for _, _, places in site.asked.binds for name, where in places.items()}


def test_a_pod_goes_to_the_nodes_that_it_prefers_most() -> None:
    affinity = of_nodes(in_zone("b", 20), in_zone("c", 50))
    site = Site(nodes(3, 3), [as_pod(pod(name, 8, affinity=affinity)) for name in ("p0", "p1", "p2")])
    assert bound(site) == {"p0": "n2", "p1": "n1", "p2": "n0"}


def test_a_gang_goes_to_the_nodes_that_it_prefers_where_all_of_it_has_room() -> None:
    members = [as_pod(pod(f"g{i}", 8, "g", affinity=of_nodes(in_zone("b", 1)))) for i in range(2)]
    site = Site(nodes(4, 2), members, [group("g", 2)])
    assert sorted(bound(site).values()) == ["n1", "n3"]


def test_a_gang_that_does_not_fit_where_it_prefers_starts_elsewhere() -> None:
    members = [as_pod(pod(f"g{i}", 8, "g", affinity=of_nodes(in_zone("b", 100)))) for i in range(3)]
    site = Site(nodes(4, 2), members, [group("g", 3)])
    assert len(bound(site)) == 3


def test_a_pod_prefers_to_be_near_others_and_apart_from_others() -> None:
    others = [there("cache", "n2", app="cache"), there("noisy", "n0", app="noisy")]
    near = as_pod(pod("near", affinity=of_pods("podAffinity", ZONE, app="cache")))
    apart = as_pod(pod("apart", affinity=of_pods("podAntiAffinity", ZONE, app="noisy")))
    site = Site(nodes(3, 3), [*others, near, apart])
    assert bound(site)["near"] == "n2"
    assert bound(site)["apart"] in ("n1", "n2")


def test_a_pod_avoids_those_that_prefer_to_be_apart_from_it() -> None:
    shy = labelled(pod("shy", 1, schedulerName="other", affinity=of_pods("podAntiAffinity", HOST, app="noisy")))
    site = Site(nodes(2), [as_pod(shy, node="n0", phase="Running"), as_pod(labelled(pod("noisy"), app="noisy"))])
    assert bound(site) == {"noisy": "n1"}


def test_pods_that_prefer_to_be_apart_are_told_apart_in_one_turn() -> None:
    affinity = of_pods("podAntiAffinity", HOST, app="web")
    site = Site(nodes(3), [as_pod(labelled(pod(f"w{i}", affinity=affinity), app="web")) for i in range(4)])
    assert sorted(bound(site).values())[:-1] in (["n0", "n1", "n2"], ["n0", "n0", "n1"], ["n0", "n1", "n1"])
    assert len(set(bound(site).values())) == 3


def test_pods_are_spread_as_evenly_as_there_is_room() -> None:
    constraint = spread(ZONE, app="web")
    web = [as_pod(labelled(pod(f"w{i}", 4, topologySpreadConstraints=constraint), app="web")) for i in range(5)]
    full = there("full", "n0", 4)
    site = Site([*nodes(2, 2), node("n2", 8, {HOST: "n2", ZONE: "b"})], [full, *web])
    assert sorted(bound(site).values()) == ["n0", "n1", "n1", "n2", "n2"]


def test_gangs_of_one_turn_that_prefer_to_be_apart_lie_in_two_zones() -> None:
    affinity = of_pods("podAntiAffinity", ZONE, app="train")
    # Only from those of other gangs.
    affinity["podAntiAffinity"][PREFERRED][0]["podAffinityTerm"]["mismatchLabelKeys"] = ["of"]
    members = [labelled(pod(f"{g}{i}", 2, g, affinity=affinity), app="train", of=g) for g in "gh" for i in range(2)]
    site = Site(nodes(2, 2), map(as_pod, members), [group("g", 2), group("h", 2)])
    where = bound(site)
    assert where["g0"] == where["g1"] != where["h0"] == where["h1"]


def test_what_pods_prefer_is_worked_out_anew_while_they_wait() -> None:
    """Both nodes are full of what it dislikes; once one is left, only the other is disliked."""
    full = [there(f"full{i}", f"n{i}", 8, app="noisy") for i in range(2)]
    site = Site(nodes(2), [*full, as_pod(pod("p", 8, affinity=of_pods("podAntiAffinity", HOST, app="noisy")))])
    assert bound(site) == {}
    site.say(full[1], gone=True)
    assert bound(site) == {"p": "n1"}
    assert [each.weight for each in site.state.jobs[site.asked.binds[0][0]].job.preferences] == [-100]


def test_more_preferences_than_are_looked_at_keep_the_heaviest() -> None:
    light = [in_zone(f"z{i}", 1) for i in range(200)]
    site = Site(nodes(2, 2), [as_pod(pod("p", affinity=of_nodes(*light, in_zone("b", 100))))])
    assert bound(site) == {"p": "n1"}
    assert len(site.state.jobs[site.asked.binds[0][0]].job.preferences) == 16


def of_gang(count: int, gpus: int, **spec: Any) -> list[Pod]:
    return [as_pod(labelled(pod(f"g{i}", gpus, "g", **spec), app="web")) for i in range(count)]


def counts(site: Site) -> list[int]:
    """How many pods each node has that has some, the fewest first."""
    return sorted(Counter(bound(site).values()).values())


def test_pods_of_a_gang_that_prefer_to_be_apart_are_apart_as_far_as_there_is_room() -> None:
    affinity = of_pods("podAntiAffinity", HOST, app="web")
    site = Site(nodes(4), of_gang(4, 2, affinity=affinity), [group("g", 4)])
    assert counts(site) == [1, 1, 1, 1]
    site = Site(nodes(2), of_gang(4, 2, affinity=affinity), [group("g", 4)])
    assert counts(site) == [2, 2]
    assert replayed(site)


def test_pods_of_a_gang_are_spread_over_zones_where_that_is_preferred() -> None:
    constraint = spread(ZONE, app="web")
    site = Site(nodes(6, 3), of_gang(6, 1, topologySpreadConstraints=constraint), [group("g", 6)])
    zones = Counter("abc"[int(where[1:]) % 3] for where in bound(site).values())
    assert zones == {"a": 2, "b": 2, "c": 2}
    assert len(set(bound(site).values())) == 3


def test_pods_of_a_gang_that_prefer_to_be_apart_take_no_more_than_a_node_has() -> None:
    """The second node has the GPUs, and no CPUs for any of them."""
    small = node("n1", 8, {HOST: "n1", ZONE: "a"})
    small["status"]["allocatable"] = {**small["status"]["allocatable"], "cpu": "500m"}
    affinity = of_pods("podAntiAffinity", HOST, app="web")
    site = Site([*nodes(1), small], of_gang(3, 2, affinity=affinity), [group("g", 3)])
    assert set(bound(site).values()) == {"n0"}
    assert replayed(site)


def test_pods_of_a_gang_that_prefer_to_be_apart_have_no_other_evicted_and_wait_for_none() -> None:
    affinity = of_pods("podAntiAffinity", HOST, app="web")
    low = there("low", "n1", 8)
    site = Site(nodes(2), [low, *of_gang(2, 4, affinity=affinity, priority=100)], [group("g", 2)], others_below=50)
    assert counts(site) == [2]
    assert not site.asked.evictions


def test_where_pods_of_a_gang_lie_is_settled_by_what_they_require_before_what_they_prefer() -> None:
    """Node n2 has a pod that they must be apart from, though they prefer to be apart from one another."""
    shy = {**of_pods("podAntiAffinity", HOST, app="web")["podAntiAffinity"], **REQUIRED_APART}
    noisy = there("noisy", "n2", 1, app="noisy")
    site = Site(nodes(3), [noisy, *of_gang(3, 1, affinity={"podAntiAffinity": shy})], [group("g", 3)])
    assert counts(site) == [1, 2]
    assert "n2" not in bound(site).values()


def replayed(site: Site) -> bool:
    """Whether the journal, decided again, comes to the same."""
    state = verify(Journal.read(site.journal.getvalue().splitlines()))
    return state.seq == site.state.seq
