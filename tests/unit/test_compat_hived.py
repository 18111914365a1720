"""HiveD's pod interface: what HiveD documents and what its own tests expect, pod by pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_pods import DESIGN, checked, design, placed, pod, pool
from phalanx.compat.hived import HivedScheduler

V100 = "DGX2-V100"
PINNED = "VC1-YQW-DGX2"
ALL_16 = list(range(16))
EVERY_NODE = [
    *("0.0.0.0", "0.0.0.1", "1.0.0.0", "1.0.0.1", "1.0.0.2", "0.0.1.0", "0.0.5.0", "0.0.2.0", "0.0.2.1", "0.0.2.2"),
    *("0.0.3.0", "0.0.3.1", "0.0.3.2", "0.0.3.3", "0.0.4.0", "0.0.4.1", "0.0.4.2", "0.0.4.3", "0.1.0.0", "0.1.0.1"),
]


def gang_of_two(name: str, cluster: str, priority: int, group: str, **more: Any) -> dict[str, Any]:
    return pod(name, cluster, priority, 16, [(2, 16)], group=group, leaf_type=V100, **more)


def one_of_16(name: str, priority: int, group: str, **more: Any) -> dict[str, Any]:
    return pod(name, "VC1", priority, 16, group=group, leaf_type=V100, **more)


def busy() -> tuple[HivedScheduler, dict[str, Any]]:
    """The design site with the pods of HiveD's own first test, and what became of each."""
    scheduler = HivedScheduler(DESIGN)
    pods = [
        pod("pod1", "VC1", 0, 1, leaf_type=V100, lazy=True),
        pod("pod2", "VC1", 1, 1, leaf_type=V100, lazy=True),
        pod("pod3", "VC1", 2, 8, leaf_type=V100, lazy=True),
        pod("pod4", "VC1", -1, 1, leaf_type=V100, lazy=True),
        gang_of_two("pod5", "VC1", 1, "group5", pinned=PINNED, lazy=True),
        gang_of_two("pod6", "VC1", 1, "group5", pinned=PINNED, lazy=True),
        pod("pod7", "VC2", 1, 8, [(3, 8)], leaf_type="DGX1-P100", lazy=True),
        pod("pod8", "VC2", 1, 7, [(1, 7), (1, 5)], group="group9", lazy=True),
        pod("pod9", "VC2", 1, 5, [(1, 7), (1, 5)], group="group9", lazy=True),
        gang_of_two("pod16", "VC1", 2, "group11", pinned=PINNED, lazy=True),
        gang_of_two("pod17", "VC1", 2, "group11", pinned=PINNED, lazy=True),
        gang_of_two("pod18", "VC1", 1, "group12", lazy=True),
        gang_of_two("pod19", "VC1", 1, "group12", lazy=True),
        gang_of_two("pod20", "VC1", 1, "group13", lazy=True),
        gang_of_two("pod21", "VC1", 1, "group13", lazy=True),
        gang_of_two("pod22", "VC1", -1, "group14", lazy=True),
        gang_of_two("pod23", "VC1", -1, "group14", lazy=True),
        pod("pod24", "VC2", 0, 2, group="group15", leaf_type="CT1", lazy=True),
        pod("pod25", "VC2", 1, 2, group="group16", leaf_type="CT1"),
    ]
    return scheduler, {each["name"]: checked(scheduler, each) for each in pods}


def test_pods_go_where_hived_puts_them() -> None:
    _, results = busy()
    assert placed(results["pod1"]) == ("0.0.1.0", [0])
    assert placed(results["pod2"]) == ("0.0.1.0", [1])  # beside its buddy
    assert placed(results["pod3"]) == ("0.0.1.0", list(range(8, 16)))  # preempts nobody
    assert placed(results["pod4"]) == ("0.0.5.0", [0])  # opportunistic: away from guaranteed work
    assert placed(results["pod5"]) == ("0.0.3.0", ALL_16)
    assert placed(results["pod6"]) == ("0.0.3.1", ALL_16)
    assert results["pod7"].kind == "wait"
    assert placed(results["pod8"]) == ("1.0.0.0", [1, 3, 4, 7, 0, 2, 6])  # in the order of its sockets and switches
    assert placed(results["pod9"]) == ("1.0.0.2", [0, 1, 2, 3, 4])
    assert placed(results["pod18"]) == ("0.0.3.2", ALL_16)
    assert placed(results["pod19"]) == ("0.0.3.3", ALL_16)
    assert placed(results["pod20"]) == ("0.0.4.0", ALL_16)
    assert placed(results["pod21"]) == ("0.0.4.1", ALL_16)
    assert placed(results["pod22"]) == ("0.0.4.2", ALL_16)
    assert placed(results["pod23"]) == ("0.0.4.3", ALL_16)


def test_a_preemptor_names_all_pods_of_the_gang_in_its_way() -> None:
    _, results = busy()
    for name in ("pod16", "pod17"):
        assert results[name].kind == "preempt"
        assert results[name].victims == ["pod5", "pod6"]
        assert results[name].node is None


def test_a_lazy_gang_loses_its_guarantee_and_keeps_running() -> None:
    scheduler, results = busy()
    assert {results["pod24"].node, results["pod25"].node} == {"0.0.0.0", "0.0.0.1"}
    status = scheduler.group("group15")
    assert status is not None
    assert status.lazily_preempted_by == "group16"
    assert status.virtual_cells is None
    assert status.state == "Allocated"
    answer = checked(scheduler, pod("pod26", "VC2", 2, 2, group="group17", leaf_type="CT1"))
    assert answer.victims == ["pod25"]  # lazy preemption is not enabled for it


def test_everything_is_free_again_when_all_pods_are_deleted() -> None:
    scheduler, results = busy()
    free = {name: state.buddies.listed() for name, state in HivedScheduler(DESIGN).cells.estate.chains.items()}
    for name in reversed(results):
        scheduler.delete(name)
        scheduler.cells.check()
    assert scheduler.groups() == ()
    assert {name: state.buddies.listed() for name, state in scheduler.cells.estate.chains.items()} == free


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (pod("p", "VC2", 1, 1, leaf_type=V100), "VC2' owns no cells of type 'DGX2-V100'"),
        (pod("p", "VC2", 1, 1, leaf_type="H900"), "no leaf in the whole cluster is of type 'H900'"),
        (pod("p", "VC2", 1, 2, [(1, 8)]), r"\(1 × 8\) have no pod of 2 leaves"),
        (pod("p", "surprise!", 1, 1), "no virtual cluster 'surprise!'"),
        (pod("p", "", 1, 1), "virtualCluster is empty"),
        (pod("p", "VC2", 1, 1, pinned="surprise!"), "no pinned cell 'surprise!'"),
        (pod("p", "VC1", -1, 1, pinned=PINNED), "opportunistic work cannot ask for a pinned cell"),
        (pod("p", "VC2", 1001, 1), "from -1 to 1000, got 1001"),
        (pod("p", "VC2", -2, 1), "from -1 to 1000, got -2"),
        (pod("p", "VC2", 1, 0), "from 1 to"),
        (pod("p", "VC1", 1, 32, leaf_type=V100), "a pod of 32 leaves never fits one node"),
        (pod("p", "VC1", 1, 16, [(7, 16)], leaf_type=V100), "7 × 16 = 112 leaves never fit; there are"),
        (pod("p", "VC2", 1, 2, [(2, 2)], leaf_type="CT1"), "2 × 2 = 4 leaves never fit; there are 2 in CT1-NODE"),
        (pod("p", "VC1", -1, 2, [(4, 2)], leaf_type="CT1"), "4 × 2 = 8 leaves never fit; there are 6 in CT1-NODE"),
        ({"virtualCluster": "VC1", "leafCellNumber": 1}, "a pod needs a name"),
        ({"name": "p", "virtualCluster": "VC1", "priority": 0}, "'leafCellNumber' is missing"),
        (pod("p", "VC1", 0, 1) | {"leafCellNumbr": 1}, "unknown key"),
    ],
)
def test_a_bad_spec_is_refused_with_the_reason_and_changes_nothing(wrong: dict[str, Any], reason: str) -> None:
    scheduler, _ = busy()
    before = scheduler.groups(), [scheduler.group(name) for name in scheduler.groups()]
    with pytest.raises(ValueError, match=reason):
        scheduler.schedule(wrong)
    scheduler.cells.check()
    assert (scheduler.groups(), [scheduler.group(name) for name in scheduler.groups()]) == before


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (gang_of_two("p3", "VC1", 1, "g", pinned=PINNED), "has 2 pod.s. of 16 leaves, and p1, p2 are these"),
        (gang_of_two("p3", "VC1", 2, "g", pinned=PINNED), "priority 1, and asks for 2"),
        (gang_of_two("p3", "VC1", 1, "g"), "pinned_id 'VC1-YQW-DGX2', and asks for ''"),
        (gang_of_two("p3", "VC2", 1, "g", pinned=PINNED), "virtual_cluster 'VC1', and asks for 'VC2'"),
        (pod("p3", "VC1", 1, 8, [(4, 8)], group="g", leaf_type=V100, pinned=PINNED), "2 × 16, and asks for 4 × 8"),
        (gang_of_two("p1", "VC1", 5, "g", pinned=PINNED), "priority 5 and asked for 1 before"),
    ],
)
def test_a_pod_that_asks_for_something_else_than_its_group_is_refused(other: dict[str, Any], reason: str) -> None:
    scheduler = HivedScheduler(DESIGN)
    for name in ("p1", "p2"):
        scheduler.schedule(gang_of_two(name, "VC1", 1, "g", pinned=PINNED))
    with pytest.raises(ValueError, match=reason):
        scheduler.schedule(other)
    scheduler.cells.check()


def test_a_pod_that_waits_may_ask_for_something_else() -> None:
    scheduler = HivedScheduler(pool(1, 2, a=1))
    scheduler.schedule(pod("first", "a", 1, 1))
    assert scheduler.schedule(pod("second", "a", 1, 2)).kind == "wait"
    assert scheduler.schedule(pod("second", "a", 1, 1)).kind == "bind"


def test_a_bound_pod_that_asks_again_gets_the_same_answer() -> None:
    scheduler = HivedScheduler(DESIGN)
    first = scheduler.schedule(pod("p", "VC1", 0, 4, leaf_type=V100))
    assert scheduler.schedule(pod("p", "VC1", 0, 4, leaf_type=V100)) == first


class TestPreemption:
    """A preemptor reserves its place; others may take that over, or it is called off."""

    def test_preemptors_compete_by_priority_and_cancelling_gives_back(self) -> None:
        scheduler = HivedScheduler(DESIGN)

        def ask(spec: dict[str, Any]) -> Any:
            return checked(scheduler, spec)

        assert placed(ask(gang_of_two("pod28", "VC1", 1, "group19", pinned=PINNED))) == ("0.0.3.0", ALL_16)
        assert ask(one_of_16("pod29", 2, "group20", pinned=PINNED, lazy=True)).victims == ["pod28"]
        assert ask(one_of_16("pod30", 1, "group21", pinned=PINNED, lazy=True)).kind == "wait"
        assert ask(one_of_16("pod31", 2, "group22", pinned=PINNED, lazy=True)).victims == ["pod28"]
        assert ask(one_of_16("pod32", 2, "group23", pinned=PINNED, lazy=True)).kind == "wait"
        nodes = [dict(scheduler.group(name).nodes) for name in ("group20", "group22")]  # type: ignore[union-attr]
        assert nodes == [{"0.0.3.0": ALL_16}, {"0.0.3.1": ALL_16}]

        assert ask(gang_of_two("pod33", "VC1", 3, "group24", pinned=PINNED, lazy=True)).victims == ["pod28"]
        assert scheduler.group("group20") is None
        assert scheduler.group("group22") is None
        assert scheduler.group("group19").state == "BeingPreempted"  # type: ignore[union-attr]

        scheduler.delete("pod28")
        assert placed(ask(one_of_16("pod34", 4, "group25", pinned=PINNED))) == ("0.0.3.0", ALL_16)
        assert scheduler.group("group24") is None

        assert ask(gang_of_two("pod35", "VC1", 5, "group26", pinned=PINNED, lazy=True)).victims == ["pod34"]
        scheduler.delete("pod35")
        scheduler.cells.check()
        assert scheduler.group("group26") is None
        assert scheduler.group("group25").state == "Allocated"  # type: ignore[union-attr]
        root = next(
            cell for cell in scheduler.virtual_cluster("VC1") if cell.type == "2-DGX2-V100-NODE" and cell.physical
        )
        assert [(child.state, child.priority) for child in root.children] == [("Used", 4), ("Free", -2)]

    def test_a_preemptor_is_bound_when_its_victims_are_gone(self) -> None:
        scheduler = HivedScheduler(pool(1, 4, a=1))
        scheduler.schedule(pod("low1", "a", 1, 2, [(2, 2)], group="low"))
        scheduler.schedule(pod("low2", "a", 1, 2, [(2, 2)], group="low"))
        high = [pod(name, "a", 2, 1, [(3, 1)], group="high") for name in ("h1", "h2", "h3")]
        assert scheduler.schedule(high[0]).victims == ["low1", "low2"]
        scheduler.delete("low1")
        assert checked(scheduler, high[0]).victims == ["low2"]
        scheduler.delete("low2")
        leaves = [placed(checked(scheduler, each))[1][0] for each in high]
        assert sorted(leaves) == [0, 1, 2]
        assert scheduler.group("high").state == "Allocated"  # type: ignore[union-attr]

    def test_pods_of_the_preemptors_priority_or_less_cannot_have_what_it_reserved(self) -> None:
        scheduler = HivedScheduler(pool(2, 1, a=1, b=1))
        scheduler.schedule(pod("low", "a", 1, 1))
        assert scheduler.schedule(pod("high", "a", 2, 1)).kind == "preempt"
        assert scheduler.schedule(pod("late", "a", 2, 1)).kind == "wait"
        scheduler.delete("low")
        assert scheduler.schedule(pod("late", "a", 2, 1)).kind == "wait"
        assert scheduler.schedule(pod("oppo", "b", -1, 1)).node == "n1"
        assert scheduler.schedule(pod("oppo2", "b", -1, 1)).kind == "wait"
        assert scheduler.schedule(pod("high", "a", 2, 1)).node == "n0"

    def test_a_preemption_is_called_off_only_when_all_its_pods_are_deleted(self) -> None:
        scheduler = HivedScheduler(pool(1, 2, a=1))
        scheduler.schedule(pod("low", "a", 1, 2))
        for name in ("h1", "h2"):
            assert scheduler.schedule(pod(name, "a", 2, 1, [(2, 1)], group="high")).kind == "preempt"
        scheduler.delete("h1")
        assert scheduler.group("high").state == "Preempting"  # type: ignore[union-attr]
        scheduler.delete("h2")
        assert scheduler.group("high") is None
        assert scheduler.group("low").state == "Allocated"  # type: ignore[union-attr]
        scheduler.cells.check()

    def test_equal_priority_never_preempts(self) -> None:
        scheduler = HivedScheduler(pool(1, 1, a=1))
        scheduler.schedule(pod("first", "a", 5, 1))
        assert scheduler.schedule(pod("second", "a", 5, 1)).kind == "wait"

    def test_a_pod_of_a_group_that_is_being_preempted_waits(self) -> None:
        scheduler = HivedScheduler(pool(1, 2, a=1))
        scheduler.schedule(pod("low1", "a", 1, 1, [(2, 1)], group="low"))
        assert scheduler.schedule(pod("high", "a", 2, 2)).victims == ["low1"]
        answer = scheduler.schedule(pod("low2", "a", 1, 1, [(2, 1)], group="low"))
        assert (answer.kind, answer.reason) == ("wait", "group 'low' is being preempted")


class TestOpportunistic:
    """Work at priority −1 runs on what others own and do not use, until they do."""

    def test_it_may_use_more_than_its_cluster_owns_and_yields_to_other_clusters(self) -> None:
        scheduler = HivedScheduler(pool(2, 1, default=1, vc1=1))
        assert scheduler.schedule(pod("prod", "vc1", 100, 1)).kind == "bind"
        oppo = scheduler.schedule(pod("oppo", "vc1", -1, 1))
        assert oppo.kind == "bind"
        assert scheduler.schedule(pod("test", "default", 10, 1)).victims == ["oppo"]
        scheduler.delete("oppo")
        assert scheduler.schedule(pod("test", "default", 10, 1)).node == oppo.node
        assert checked(scheduler, pod("oppo", "vc1", -1, 1)).kind == "wait"

    def test_guaranteed_work_avoids_cells_with_opportunistic_work(self) -> None:
        scheduler = HivedScheduler(pool(3, 1, a=3))
        first = scheduler.schedule(pod("oppo", "a", -1, 1)).node
        nodes = [scheduler.schedule(pod(name, "a", 1, 1)).node for name in ("g1", "g2")]
        assert first not in nodes
        assert scheduler.schedule(pod("g3", "a", 1, 1)).victims == ["oppo"]

    def test_it_packs_with_its_own_kind(self) -> None:
        scheduler = HivedScheduler(pool(3, 4, a=3))
        assert scheduler.schedule(pod("g", "a", 1, 1)).node == "n0"
        assert [scheduler.schedule(pod(f"o{i}", "a", -1, 1)).node for i in range(5)] == ["n1"] * 4 + ["n2"]

    def test_it_may_use_idle_pinned_cells(self) -> None:
        scheduler = HivedScheduler(DESIGN)
        answer = checked(scheduler, pod("o", "VC2", -1, 1, leaf_type="IB-DGX2-V100"))
        assert answer.node == "0.1.0.0"
        claim = pod("g", "VC1", 0, 16, [(2, 16)], leaf_type="IB-DGX2-V100", pinned="VC1-YQW-IB-DGX2")
        assert checked(scheduler, claim).victims == ["o"]


class TestLazyPreemption:
    def test_a_lazy_gang_is_stopped_only_when_its_place_is_needed(self) -> None:
        scheduler = HivedScheduler(pool(4, 4, vc1=1, default=3))
        test_node = scheduler.schedule(pod("test", "vc1", 0, 4, lazy=True)).node
        prod_node = checked(scheduler, pod("prod", "vc1", 100, 4)).node
        assert prod_node != test_node
        assert scheduler.group("test").lazily_preempted_by == "prod"  # type: ignore[union-attr]
        big = [pod(name, "default", 100, 4, [(3, 4)], group="big") for name in ("b1", "b2", "b3")]
        assert checked(scheduler, big[0]).victims == ["test"]

    def test_a_gang_that_is_not_lazy_is_stopped_at_once(self) -> None:
        scheduler = HivedScheduler(pool(4, 4, vc1=1, default=3))
        scheduler.schedule(pod("test", "vc1", 0, 4))
        assert scheduler.schedule(pod("prod", "vc1", 100, 4)).victims == ["test"]

    def test_a_gang_that_finds_no_hardware_takes_nobodys_guarantee(self) -> None:
        config = design()
        cells = config["virtualClusters"]["VC1"]["virtualCells"]
        cells[0]["cellNumber"], cells[3]["cellNumber"] = 0, 3
        scheduler = HivedScheduler(config)
        first = gang_of_two("pod39", "VC1", 1, "group27", lazy=True, nodes=["0.0.3.2", "0.0.3.3"])
        assert placed(checked(scheduler, first)) == ("0.0.3.2", ALL_16)
        second = one_of_16("pod40", 1, "group28", lazy=True, nodes=["0.0.4.3"])
        assert placed(checked(scheduler, second)) == ("0.0.4.3", ALL_16)
        suggested = ["0.0.3.2", "0.0.3.3", "0.0.4.3"]
        third = pod("pod41", "VC1", 2, 16, [(4, 16)], group="group29", leaf_type=V100, lazy=True, nodes=suggested)
        assert checked(scheduler, third).kind == "wait"
        for name in ("group27", "group28"):
            assert scheduler.group(name).lazily_preempted_by == ""  # type: ignore[union-attr]


class TestSuggestedNodes:
    def test_they_are_kept_to_when_a_pod_minds_them(self) -> None:
        scheduler = HivedScheduler(DESIGN)
        assert placed(scheduler.schedule(pod("pod36", "VC1", -1, 1, nodes=["0.0.1.0"]))) == ("0.0.1.0", [0])
        assert placed(scheduler.schedule(pod("pod37", "VC1", 1, 1, pinned=PINNED, nodes=["0.0.3.0"]))) == (
            "0.0.3.0",
            [0],
        )
        assert placed(scheduler.schedule(pod("pod38", "VC1", 1, 1, pinned=PINNED, nodes=["0.0.3.1"]))) == (
            "0.0.3.1",
            [0],
        )
        scheduler.cells.check()

    def test_a_gang_waits_for_a_node_that_is_not_suggested_and_preempts_only_within_them(self) -> None:
        scheduler = HivedScheduler(DESIGN)
        without = [node for node in EVERY_NODE if node != "0.0.3.1"]

        def gang(name: str, priority: int, group: str, nodes: list[str]) -> Any:
            return checked(scheduler, gang_of_two(name, "VC1", priority, group, pinned=PINNED, nodes=nodes))

        assert gang("pod27", 1, "group18", without).kind == "wait"
        assert gang("pod27", 1, "group18", EVERY_NODE).node == "0.0.3.0"
        assert gang("pod33", 3, "group24", without).kind == "wait"
        assert scheduler.group("group24") is None
        assert gang("pod33", 3, "group24", EVERY_NODE).kind == "preempt"
        assert gang("pod33", 3, "group24", without).kind == "wait"
        assert scheduler.group("group24") is None
        assert scheduler.group("group18").state == "Allocated"  # type: ignore[union-attr]

    def test_they_are_ignored_by_default(self) -> None:
        scheduler = HivedScheduler(pool(2, 1, a=2))
        spec = pod("p", "a", 1, 1) | {"suggested_nodes": ["n1"]}
        del spec["ignoreK8sSuggestedNodes"]
        assert scheduler.schedule(spec).node == "n0"


class TestBadHardware:
    def bad_free(self, scheduler: HivedScheduler, name: str) -> list[bool]:
        """Which of the cluster's nodes of the rack of three are shown as bad."""
        nodes = [cell for cell in scheduler.virtual_cluster(name) if cell.type == "DGX2-V100-NODE"]
        return [cell.healthiness == "Bad" for cell in nodes if cell.address in self.rack[name]]

    rack = {"VC1": ("VC1/2", "VC1/3"), "VC2": ("VC2/4",)}  # noqa: RUF012

    def test_cells_that_can_only_be_had_broken_are_shown_as_bad(self) -> None:
        config = design()
        config["virtualClusters"]["VC2"]["virtualCells"][2]["cellType"] = "3-DGX2-V100-NODE.DGX2-V100-NODE"
        scheduler = HivedScheduler(config)

        def set_health(node: str, healthy: bool) -> None:
            scheduler.set_node_health(node, healthy)
            scheduler.cells.check()

        def shown() -> tuple[list[bool], list[bool]]:
            return self.bad_free(scheduler, "VC1"), self.bad_free(scheduler, "VC2")

        first = one_of_16("pod42", 0, "group30", nodes=["0.0.2.0"])
        assert checked(scheduler, first).node == "0.0.2.0"
        set_health("0.0.2.1", False)
        assert shown() == ([False, False], [False])
        second = pod("pod43", "VC2", 0, 16, group="group31", leaf_type=V100, nodes=["0.0.2.2"])
        assert checked(scheduler, second).node == "0.0.2.2"
        assert shown() == ([False, True], [False])  # the free one of VC1 has only broken hardware left
        scheduler.delete("pod43")
        assert shown() == ([False, False], [False])
        set_health("0.0.2.2", False)
        assert shown() == ([False, True], [True])
        set_health("0.0.2.2", True)
        assert shown() == ([False, False], [False])
        set_health("0.0.2.0", False)
        set_health("0.0.2.2", False)
        scheduler.delete("pod42")
        assert shown() == ([True, True], [True])
        for node in ("0.0.2.0", "0.0.2.1", "0.0.2.2"):
            set_health(node, True)
        assert shown() == ([False, False], [False])

    def test_a_higher_cell_is_split_when_the_low_one_is_broken_and_nobody_needs_it_whole(self) -> None:
        config = design()
        first, _, third, fourth = config["virtualClusters"]["VC1"]["virtualCells"]
        first["cellNumber"], third["cellNumber"], fourth["cellNumber"] = 4, 0, 0
        pair = {"cellType": "4-DGX2-V100-NODE.2-DGX2-V100-NODE", "cellNumber": 1}
        config["virtualClusters"]["VC2"]["virtualCells"][2] = pair
        scheduler = HivedScheduler(config)
        suggested = ["0.0.3.2", "0.0.3.3", "0.0.4.2", "0.0.4.3"]
        assert checked(scheduler, one_of_16("pod44", 0, "group32", nodes=suggested)).node == "0.0.3.2"
        scheduler.set_node_health("0.0.3.3", False)
        assert checked(scheduler, one_of_16("pod45", 0, "group33", nodes=suggested)).node == "0.0.4.2"
        scheduler.set_node_health("0.0.4.3", False)
        more = [*suggested, "0.0.4.0", "0.0.4.1"]
        assert checked(scheduler, one_of_16("pod46", 0, "group34", nodes=more)).kind == "wait"  # VC2's pair
        assert checked(scheduler, gang_of_two("vc2", "VC2", 0, "pair")).node == "0.0.4.0"

    def test_nothing_new_goes_to_a_bad_node_and_what_runs_there_runs_on(self) -> None:
        scheduler = HivedScheduler(pool(2, 2, a=2))
        assert scheduler.schedule(pod("first", "a", 1, 1)).node == "n0"
        scheduler.set_node_health("n0", False)
        assert checked(scheduler, pod("second", "a", 1, 2)).node == "n1"
        answer = checked(scheduler, pod("third", "a", 1, 1))
        assert (answer.kind, answer.node) == ("wait", None)
        assert "which is bad" in answer.reason
        assert scheduler.group("first").state == "Allocated"  # type: ignore[union-attr]
        scheduler.set_node_health("n0", True)
        assert checked(scheduler, pod("again", "a", 1, 1)).node == "n0"

    def test_a_pod_of_an_allocated_gang_goes_to_its_place_even_if_that_has_broken(self) -> None:
        scheduler = HivedScheduler(pool(2, 1, a=2))
        pods = [pod(name, "a", 1, 1, [(2, 1)], group="g") for name in ("p1", "p2")]
        scheduler.schedule(pods[0])
        scheduler.set_node_health("n1", False)
        assert scheduler.schedule(pods[1]).node == "n1"

    def test_a_preemptor_whose_place_breaks_looks_for_another(self) -> None:
        scheduler = HivedScheduler(pool(2, 1, a=2))
        scheduler.schedule(pod("low0", "a", 1, 1))
        scheduler.schedule(pod("low1", "a", 1, 1))
        assert scheduler.schedule(pod("high", "a", 2, 1)).victims == ["low0"]
        scheduler.set_node_health("n0", False)
        assert checked(scheduler, pod("high", "a", 2, 1)).victims == ["low1"]
        assert scheduler.group("low0").state == "Allocated"  # type: ignore[union-attr]

    def test_an_unknown_node_is_refused(self) -> None:
        with pytest.raises(ValueError, match="there is no node 'n7'"):
            HivedScheduler(pool(2, 1, a=2)).set_node_health("n7", False)


class TestReconfiguration:
    def reshaped(self) -> dict[str, Any]:
        """The design site with a shorter chain, a node gone, fewer cells for VC2 and a rack taken apart."""
        config = design()
        physical = config["physicalCluster"]
        physical["cellTypes"]["DGX2-V100-NODE"] = {
            "childCellType": V100,
            "childCellNumber": 16,
            "isNodeLevel": True,
        }
        physical["physicalCells"][7]["cellChildren"][0]["cellChildren"][0]["cellAddress"] = "0.0.3.100"
        config["virtualClusters"]["VC2"]["virtualCells"][0]["cellNumber"] = 1
        pairs = [{"cellChildren": [{"cellAddress": f"0.0.4.{100 + 2 * i + j}"} for j in (0, 1)]} for i in (0, 1)]
        physical["physicalCells"][8] = {"cellType": "4-DGX2-V100-NODE", "cellChildren": pairs}
        for i in range(4):
            physical["physicalCells"].append({"cellType": "DGX2-V100-NODE", "cellAddress": f"0.0.4.{i}"})
        return config

    def test_running_pods_stay_and_what_no_longer_fits_is_preempted_lazily(self) -> None:
        old, results = busy()
        new = HivedScheduler(self.reshaped(), restore=old)
        new.cells.check()
        bound = {name: result for name, result in results.items() if result.kind == "bind"}
        for group in ("group9", "group13", "group15"):
            assert new.group(group).is_lazily_preempted, group  # type: ignore[union-attr]
        for group in ("pod1", "pod2", "pod3", "group5", "group12", "group16"):
            assert not new.group(group).is_lazily_preempted, group  # type: ignore[union-attr]
        assert new.group("group11") is None  # it was only waiting for its victims
        for name, result in bound.items():
            held = new.group(new._pods[name].spec.group)
            assert held is not None
            assert set(result.gpus) <= set(held.nodes[str(result.node)])
        for name in bound:
            new.delete(name)
            new.cells.check()
        assert new.groups() == ()

    def test_the_old_scheduler_is_left_as_it_was(self) -> None:
        old, _ = busy()
        before = [old.group(name) for name in old.groups()]
        HivedScheduler(self.reshaped(), restore=old)
        old.cells.check()
        assert [old.group(name) for name in old.groups()] == before

    def test_a_cluster_that_loses_a_cell_to_another_yields_when_that_one_asks(self) -> None:
        old = HivedScheduler(pool(3, 1, a=2, b=1))
        for name in ("a1", "a2"):
            old.schedule(pod(name, "a", 5, 1))
        new = HivedScheduler(pool(3, 1, a=1, b=2), restore=old)
        new.cells.check()
        lazily = [name for name in ("a1", "a2") if new.group(name).is_lazily_preempted]  # type: ignore[union-attr]
        assert len(lazily) == 1
        pods = [pod(name, "b", 0, 1, [(2, 1)], group="b") for name in ("b1", "b2")]
        assert checked(new, pods[0]).victims == lazily

    def test_the_more_important_of_two_keeps_its_guarantee(self) -> None:
        old = HivedScheduler(pool(2, 1, a=2))
        old.schedule(pod("low", "a", 1, 1))
        old.schedule(pod("high", "a", 9, 1))
        new = HivedScheduler(pool(2, 1, a=1), restore=old)
        new.cells.check()
        assert new.group("low").lazily_preempted_by == "high"  # type: ignore[union-attr]
        assert not new.group("high").is_lazily_preempted  # type: ignore[union-attr]

    def test_a_deleted_cluster_leaves_its_pods_running_without_guarantee(self) -> None:
        old = HivedScheduler(pool(2, 1, default=1, vc1=1))
        old.schedule(pod("d", "default", 5, 1))
        new = HivedScheduler(pool(2, 1, vc1=2), restore=old)
        assert new.group("d").is_lazily_preempted  # type: ignore[union-attr]
        pods = [pod(name, "vc1", 0, 1, [(2, 1)], group="all") for name in ("v1", "v2")]
        assert checked(new, pods[0]).victims == ["d"]

    def test_added_nodes_change_nothing_for_who_runs(self) -> None:
        old = HivedScheduler(pool(2, 1, a=2))
        old.schedule(pod("p", "a", 1, 1))
        new = HivedScheduler(pool(3, 1, a=3), restore=old)
        assert not new.group("p").is_lazily_preempted  # type: ignore[union-attr]
        wants_all = pod("all", "a", 1, 1, [(3, 1)])
        assert checked(new, wants_all).kind == "wait"

    def test_broken_nodes_stay_broken_and_gangs_can_be_completed(self) -> None:
        old = HivedScheduler(pool(2, 1, a=2))
        pods = [pod(name, "a", 1, 1, [(2, 1)], group="g") for name in ("p1", "p2")]
        old.schedule(pods[0])
        old.set_node_health("n1", False)
        new = HivedScheduler(pool(2, 1, a=2), restore=old)
        assert new.schedule(pods[1]).node == "n1"
        new.delete("p1")
        new.delete("p2")
        assert checked(new, pods[0]).kind == "wait"


class TestConfig:
    def test_it_is_a_path_a_text_or_a_dict(self, tmp_path: Path) -> None:
        config = pool(2, 4, a=1, b=1)
        path = tmp_path / "hived.yaml"
        path.write_text(yaml.safe_dump(config))
        wrapped = yaml.safe_dump({"hivedscheduler": {"config": path.read_text()}, "rest-server": {"port": 1}})
        for form in (config, path, str(path), path.read_text(), wrapped, json.dumps(config)):
            assert HivedScheduler(form).virtual_clusters() == ("a", "b")

    def test_a_file_that_is_not_there_is_refused(self) -> None:
        with pytest.raises(ValueError, match="No such file"):
            HivedScheduler("/nowhere/hived.yaml")

    def test_clusters_that_own_more_than_there_is_are_refused_with_the_arithmetic(self) -> None:
        config = pool(2, 4, a=2, b=1)
        with pytest.raises(ValueError, match=r"NODE: 2 there, 3 owned \(2 of 'a' \+ 1 of 'b'\), -1 left"):
            HivedScheduler(config)

    def test_levels_are_added_up_from_the_top(self) -> None:
        config = pool(2, 4, a=1)
        config["virtualClusters"]["a"]["virtualCells"].append({"cellType": "POOL.NODE.GPU", "cellNumber": 5})
        with pytest.raises(ValueError, match=r"GPU: 4 there, 5 owned .*, -1 left"):
            HivedScheduler(config)

    def test_pinned_cells_that_take_a_promised_rack_apart_are_refused(self) -> None:
        config = design()
        config["physicalCluster"]["physicalCells"][8]["cellChildren"][0]["pinnedCellId"] = "half"
        config["virtualClusters"]["VC2"]["pinnedCells"] = [{"pinnedCellId": "half"}]
        config["virtualClusters"]["VC2"]["virtualCells"].append({"cellType": "4-DGX2-V100-NODE", "cellNumber": 1})
        with pytest.raises(ValueError, match="4-DGX2-V100-NODE: 0 there, 1 owned"):
            HivedScheduler(config)

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (
                lambda c: c["virtualClusters"]["a"]["virtualCells"][0].update(cellType="RACK"),
                "unknown cell type 'RACK'",
            ),
            (lambda c: c["virtualClusters"]["a"]["virtualCells"][0].update(cellType="POOL.RACK"), "contains no 'RACK'"),
            (
                lambda c: c["virtualClusters"]["a"]["virtualCells"][0].update(cellType="NODE"),
                "no physical cells of type",
            ),
            (lambda c: c["virtualClusters"]["a"].update(pinnedCells=[{"pinnedCellId": "x"}]), "pinnedCellId 'x'"),
            (lambda c: c["physicalCluster"]["physicalCells"][0].update(cellType="RACK"), "unknown cellType 'RACK'"),
            (lambda c: c["physicalCluster"]["physicalCells"][0]["cellChildren"].pop(), "2 children, got 1"),
            (lambda c: c["physicalCluster"]["physicalCells"][0]["cellChildren"][0].clear(), "needs its name"),
            (lambda c: c["physicalCluster"]["cellTypes"]["NODE"].update(isNodeLevel=False), "exactly one node level"),
            (lambda c: c["physicalCluster"]["cellTypes"]["NODE"].update(childCellType="POOL"), "contains itself"),
            (lambda c: c["physicalCluster"]["cellTypes"]["NODE"].update(childCellNumber=0), "from 1 to"),
            (lambda c: c["physicalCluster"]["cellTypes"]["NODE"].update(leafs=4), "unknown key"),
            (
                lambda c: c["physicalCluster"]["physicalCells"].append(dict(c["physicalCluster"]["physicalCells"][0])),
                "is given twice",
            ),
        ],
    )
    def test_a_site_that_contradicts_itself_is_refused(self, change: Any, reason: str) -> None:
        config = pool(2, 4, a=1)
        change(config)
        with pytest.raises(ValueError, match=reason):
            HivedScheduler(config)

    def test_levels_between_the_chain_and_the_type_may_be_left_out(self) -> None:
        config = design()
        config["virtualClusters"]["VC2"]["virtualCells"][1]["cellType"] = "3-DGX1-P100-NODE.DGX1-P100-CPU-SOCKET"
        cells = HivedScheduler(config).virtual_cluster("VC2")
        assert [cell.type for cell in cells].count("DGX1-P100-CPU-SOCKET") == 2


def test_a_cluster_shows_its_cells_and_what_its_opportunistic_pods_borrow() -> None:
    scheduler = HivedScheduler(pool(2, 2, a=1, b=1))
    scheduler.schedule(pod("p", "a", 7, 1))
    scheduler.schedule(pod("o", "a", -1, 1))
    owned, borrowed = scheduler.virtual_cluster("a")
    assert (owned.type, owned.address, owned.state, owned.priority, owned.physical) == (
        "NODE",
        "a/0",
        "Used",
        7,
        "0/n0",
    )
    assert [leaf.state for leaf in owned.children] == ["Used", "Free"]
    assert (borrowed.physical, borrowed.is_opportunistic, borrowed.priority) == ("0/n1/0", True, -1)
    assert [cell.state for cell in scheduler.virtual_cluster("b")] == ["Free"]
    with pytest.raises(ValueError, match="no virtual cluster 'c'"):
        scheduler.virtual_cluster("c")


def test_incremental_scheduling_is_a_group_for_each_pod() -> None:
    scheduler = HivedScheduler(pool(2, 1, a=2))
    kinds = [scheduler.schedule(pod(f"p{i}", "a", 1, 1)).kind for i in range(4)]
    assert kinds == ["bind", "bind", "wait", "wait"]


def test_a_gang_waits_as_a_whole_and_holds_up_nobody() -> None:
    scheduler = HivedScheduler(pool(2, 1, a=2))
    scheduler.schedule(pod("one", "a", 1, 1))
    assert scheduler.schedule(pod("g1", "a", 1, 1, [(2, 1)], group="g")).kind == "wait"
    assert scheduler.schedule(pod("two", "a", 1, 1)).kind == "bind"


def test_a_pod_that_names_no_group_is_one_of_its_own() -> None:
    scheduler = HivedScheduler(pool(1, 2, a=1))
    assert scheduler.schedule({"name": "p", "virtualCluster": "a", "leafCellNumber": 2}).kind == "bind"
    assert scheduler.group("p").priority == 0  # type: ignore[union-attr]
    scheduler.delete("p")
    scheduler.delete("p")
    scheduler.delete("never seen")
    nothing = {"affinityGroup": None, "leafCellType": None, "pinnedCellId": None, "lazyPreemptionEnable": None}
    assert scheduler.schedule({"name": "q", "virtualCluster": "a", "leafCellNumber": 1} | nothing).kind == "bind"
    scheduler.delete("q")
    assert scheduler.schedule({"name": "p", "virtualCluster": "a", "gpuNumber": 2, "gpuType": "GPU"}).kind == "bind"


def test_large_pods_go_first_where_small_ones_would_strand_them() -> None:
    config = design()
    scheduler = HivedScheduler(config)
    members = [(1, 4), (2, 8)]
    nodes = [
        checked(scheduler, pod(f"p{i}", "VC2", 1, size, members, group="g", leaf_type="DGX1-P100"))
        for i, size in enumerate([4, 8, 8])
    ]
    assert [answer.kind for answer in nodes] == ["bind"] * 3


def test_the_order_in_which_members_are_named_means_nothing() -> None:
    scheduler = HivedScheduler(pool(2, 4, a=2))
    first = scheduler.schedule(pod("p1", "a", 1, 2, [(1, 2), (2, 1)], group="g"))
    second = scheduler.schedule(pod("p2", "a", 1, 1, [(1, 1), (1, 2), (1, 1)], group="g"))
    assert (first.kind, second.kind) == ("bind", "bind")


def test_a_cluster_shows_free_shapes_and_how_broken_up_they_are() -> None:
    scheduler = HivedScheduler(pool(3, 4, a=3))
    for name, leaves in (("p", 3), ("q", 3)):
        scheduler.schedule(pod(name, "a", 1, leaves))
    (shapes,) = scheduler.virtual_cluster("a").shapes
    assert (shapes.leaves, shapes.free_leaves, shapes.fits) == (12, 6, {1: 6, 4: 1})
    assert shapes.fragmentation == pytest.approx(2 / 6)


def test_a_cluster_tells_bad_cells_from_those_that_are_doomed() -> None:
    scheduler = HivedScheduler(pool(2, 1, a=2))
    scheduler.schedule(pod("p", "a", 1, 1))
    scheduler.set_node_health("n0", False)
    scheduler.set_node_health("n1", False)
    status = scheduler.virtual_cluster("a")
    assert [cell.physical for cell in status.bad_cells] == ["0/n0", "0/n1"]
    assert [cell.physical for cell in status.doomed_bad_cells] == ["0/n1"]


def test_a_users_quota_holds_over_all_clusters_but_the_exempt_ones() -> None:
    config = pool(4, 1, a=2, b=1, c=1) | {"quotaExcludeVCs": ["c"]}
    scheduler = HivedScheduler(config)

    def of_alice(name: str, cluster: str, priority: int = 0) -> Any:
        return checked(scheduler, pod(name, cluster, priority, 1) | {"quota": {"tag": "alice", "count": 1}})

    assert of_alice("first", "a").kind == "bind"
    assert of_alice("second", "b").reason == "exceeded user quota of 'alice': 1 used + 1 required > 1"
    assert of_alice("free", "c").kind == "bind"
    assert of_alice("oppo", "a", -1).kind == "bind"
    scheduler.delete("first")
    assert of_alice("second", "b").kind == "bind"


def test_a_cluster_borrows_no_more_than_its_limit() -> None:
    config = pool(3, 1, a=1, b=2)
    config["virtualClusters"]["a"]["borrowLimit"] = 1
    scheduler = HivedScheduler(config)
    assert checked(scheduler, pod("o1", "a", -1, 1)).kind == "bind"
    answer = checked(scheduler, pod("o2", "a", -1, 1))
    assert (answer.kind, answer.reason) == ("wait", "exceeded what 'a' may borrow: 1 borrowed + 1 required > 1")
    assert checked(scheduler, pod("g", "a", 0, 1)).kind == "bind"
    assert checked(scheduler, pod("o3", "b", -1, 1)).kind == "bind"
