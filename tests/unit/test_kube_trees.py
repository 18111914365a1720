"""CompositePodGroups: PodGroups that start together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_objects import as_pod, node, pod
from kube_turns import Site, on
from phalanx.kube.api.reflector import Changed
from phalanx.kube.gangs.groups import COMPOSITE, NATIVE
from phalanx.kube.objects.composite import CompositePodGroup
from phalanx.kube.objects.group import PodGroup
from phalanx.kube.objects.pod import Pod

RACK = "nvidia.com/gpu.clique"


def composite(name: str, least: int, parent: str = "", topology: str = "", basic: bool = False) -> CompositePodGroup:
    policy = {"basic": {}} if basic else {"gang": {"minGroupCount": least}}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec(policy, parent, topology)},
        CompositePodGroup,
    )


def leaf(name: str, least: int, parent: str, topology: str = "") -> PodGroup:
    policy = {"gang": {"minCount": least}}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec(policy, parent, topology)},
        PodGroup,
    )


def spec(policy: dict[str, Any], parent: str, topology: str) -> dict[str, Any]:
    constraints = {"schedulingConstraints": {"topology": [{"key": topology}]}} if topology else {}
    return {"schedulingPolicy": policy, "parentCompositePodGroupName": parent, **constraints}


def member(of: str, index: int, gpus: int = 8) -> Pod:
    return as_pod(pod(f"{of}-{index}", gpus, schedulingGroup={"podGroupName": of}))


def site(nodes: int, *groups: CompositePodGroup | PodGroup) -> Site:
    found = Site([node(f"n{i}", labels={RACK: f"rack{i // 2}"}) for i in range(nodes)])
    for each in groups:
        kind = COMPOSITE if isinstance(each, CompositePodGroup) else NATIVE
        found.mirror.take(Changed(kind, each))
    found.turn()
    return found


def bound(at: Site) -> list[list[str]]:
    return [sorted(places) for _, _, places in at.asked.binds]


def test_groups_of_one_start_together_or_not_at_all() -> None:
    at = site(3, composite("root", 2), leaf("a", 2, "root"), leaf("b", 1, "root"))
    at.say(member("a", 0), member("a", 1))
    assert bound(at) == []
    assert at.asked.lines["a-0"].endswith(
        "2 groups of root start together, and 1 can: 1 pods of PodGroup b start together, and 0 are there"
    )
    at.say(member("b", 0))
    assert bound(at) == [["a-0", "a-1", "b-0"]]


def test_a_group_that_is_written_meanwhile_does_not_start_alone() -> None:
    groups = composite("root", 2), leaf("a", 1, "root"), leaf("b", 1, "root")
    at = site(2, *groups)
    at.say(member("a", 0))
    for each in groups:
        at.mirror.take(Changed(COMPOSITE if isinstance(each, CompositePodGroup) else NATIVE, each))
    at.turn()
    assert bound(at) == []
    at.say(member("b", 0))
    assert bound(at) == [["a-0", "b-0"]]


def test_what_does_not_fit_as_a_whole_is_bound_in_no_part() -> None:
    at = site(2, composite("root", 2), leaf("a", 2, "root"), leaf("b", 1, "root"))
    at.say(member("a", 0), member("a", 1), member("b", 0))
    assert bound(at) == []
    assert "no part of this cluster could ever hold it" in at.asked.groups["root"]


def test_a_group_beyond_those_that_must_starts_after_them_as_a_whole() -> None:
    at = site(4, composite("root", 1), leaf("a", 2, "root"), leaf("b", 2, "root"))
    at.say(member("a", 0), member("a", 1), member("b", 0))
    assert bound(at) == [["a-0", "a-1"]]
    at.bound()
    assert bound(at) == [["a-0", "a-1"]]
    at.say(member("b", 1))
    assert bound(at)[1:] == [["b-0", "b-1"]]


def test_groups_lie_in_groups_that_lie_in_others() -> None:
    """Of the two sides of the root both start, of the left side one group."""
    at = site(
        4,
        *(composite("root", 2), composite("left", 1, "root"), composite("right", 2, "root")),
        *(leaf("l0", 1, "left"), leaf("l1", 1, "left"), leaf("r0", 1, "right"), leaf("r1", 1, "right")),
    )
    at.say(member("l1", 0), member("r0", 0))
    assert bound(at) == []
    at.say(member("r1", 0))
    assert bound(at) == [["l1-0", "r0-0", "r1-0"]]
    at.bound()
    at.say(member("l0", 0))
    assert bound(at)[1:] == [["l0-0"]]


def test_each_group_lies_in_a_domain_of_its_own_topology() -> None:
    at = site(4, composite("root", 2), leaf("a", 2, "root", RACK), leaf("b", 2, "root", RACK))
    at.say(*(member(of, i) for i in range(2) for of in "ab"))
    (places,) = (places for _, _, places in at.asked.binds)
    racks = {of: {int(places[f"{of}-{i}"][1:]) // 2 for i in range(2)} for of in "ab"}
    assert sorted(racks.values()) == [{0}, {1}]


def test_groups_of_one_that_is_basic_start_each_by_itself() -> None:
    at = site(2, composite("root", 0, basic=True), leaf("a", 1, "root"), leaf("b", 2, "root"))
    at.say(member("a", 0), member("b", 0))
    assert bound(at) == [["a-0"]]


def test_a_group_of_groups_may_come_after_its_pods() -> None:
    at = site(2, leaf("a", 1, "root"), leaf("b", 1, "root"))
    at.say(member("a", 0), member("b", 0))
    assert "CompositePodGroup default/root is not there yet" in at.asked.lines["a-0"]
    at.mirror.take(Changed(COMPOSITE, composite("root", 2)))
    at.turn()
    assert bound(at) == [["a-0", "b-0"]]


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        ([composite("root", 1, "root")], "it lies in more than 3 groups of groups, or in itself"),
        ([composite("root", 1, "up"), composite("up", 1, "root")], "it lies in more than 3 groups of groups"),
        (
            [composite(name, 1, up) for name, up in (("root", "c1"), ("c1", "c2"), ("c2", "c3"), ("c3", ""))],
            "it lies in more than 3 groups of groups",
        ),
        (
            [composite("root", 1, "top", RACK), composite("top", 1)],
            "phalanx does not look at spec.schedulingConstraints of CompositePodGroup root in top",
        ),
        (
            [composite("root", 1, "", RACK, basic=True)],
            "spec.schedulingConstraints of CompositePodGroup default/root, which is no gang",
        ),
    ],
)
def test_what_is_not_looked_at_is_told(groups: list[CompositePodGroup], line: str) -> None:
    at = site(2, *groups, leaf("a", 1, "root"))
    at.say(member("a", 0), as_pod(pod("fine", 8)))
    assert bound(at) == [["fine"]]
    assert line in at.asked.lines["a-0"]


def test_a_group_of_groups_that_runs_is_known_after_a_restart_and_makes_way_whole() -> None:
    groups = composite("root", 2), leaf("a", 1, "root"), leaf("b", 1, "root")
    at = site(2, *groups)
    at.say(member("a", 0), member("b", 0))
    ((job, _, places),) = at.asked.binds
    again = site(0)
    for each in groups:
        again.mirror.take(Changed(COMPOSITE if isinstance(each, CompositePodGroup) else NATIVE, each))
    running = [on(member(of, 0), places[f"{of}-0"], job=job) for of in "ab"]
    restarted = Site([node(f"n{i}") for i in range(2)], running)
    assert restarted.asked.deleted == []
    at.bound()
    at.say(*running)
    at.say(as_pod(pod("urgent", 8, priority=100)))
    assert at.asked.evictions[0][2] == ["a-0", "b-0"]
