"""Cells themselves: the buddy system, the search for nodes and leaves, trials, and the rack of HiveD's paper."""

from __future__ import annotations

from typing import Any

import pytest

from hived_pods import pool
from phalanx.bench.cells.cells import Walk
from phalanx.cluster.cells import CellError, CellSite, CellType, chain_of
from phalanx.compat.hived import HivedScheduler
from phalanx.placement.cells.ask import request_of, seats_of
from phalanx.placement.cells.cells import Cells
from phalanx.placement.cells.group import GroupState
from phalanx.placement.cells.request import Member, Request
from phalanx.placement.cells.settle import SafetyError, settle
from phalanx.placement.cells.trees.buddy import surplus
from phalanx.workload.gang import Gang, Role, Task
from phalanx.workload.job import Job

RACK = {
    "physicalCluster": {
        "cellTypes": {
            "SWITCH": {"childCellType": "GPU", "childCellNumber": 2},
            "SOCKET": {"childCellType": "SWITCH", "childCellNumber": 2},
            "NODE": {"childCellType": "SOCKET", "childCellNumber": 2, "isNodeLevel": True},
            "RACK": {"childCellType": "NODE", "childCellNumber": 4},
        },
        "physicalCells": [{"cellType": "RACK", "cellChildren": [{"cellAddress": f"n{i}"} for i in range(4)]}],
    },
    "virtualClusters": {
        **{
            tenant: {
                "virtualCells": [
                    {"cellType": "RACK.NODE.SOCKET", "cellNumber": 1},
                    {"cellType": "RACK.NODE.SOCKET.SWITCH", "cellNumber": 1},
                    {"cellType": "RACK.NODE.SOCKET.SWITCH.GPU", "cellNumber": 1},
                ]
            }
            for tenant in ("A", "B")
        },
        "C": {
            "virtualCells": [
                {"cellType": "RACK.NODE", "cellNumber": 2},
                {"cellType": "RACK.NODE.SOCKET.SWITCH", "cellNumber": 1},
            ]
        },
    },
}
"""Figure 3 of HiveD: four nodes of eight GPUs, three tenants."""

REQUESTS = [("A", 4), ("A", 2), ("A", 1), ("B", 4), ("B", 2), ("B", 1), ("C", 8), ("C", 8), ("C", 2)]


def ask(cells: Cells, number: int, tenant: str, leaves: int, priority: int = 0) -> Any:
    return cells.schedule(Request(f"g{number}", tenant, (Member(1, leaves),), priority))


def test_in_the_rack_of_the_paper_everybody_gets_what_it_owns_in_every_order() -> None:
    """Orders are walked as a tree by trials; what is left to ask and what is taken say how it goes on."""
    cells = HivedScheduler(RACK).cells
    seen: set[Any] = set()
    orders = 0

    def go_on(left: list[int]) -> None:
        nonlocal orders
        taken = sum(1 << i for i, leaf in enumerate(cells.estate.leaves.values()) if leaf.using)
        state = tuple(REQUESTS[number] for number in left), taken
        if state in seen:
            return
        seen.add(state)
        orders += not left
        for number in {REQUESTS[number]: number for number in left}.values():
            with cells.trial():
                outcome = ask(cells, number, *REQUESTS[number])
                assert outcome.group is not None
                assert not outcome.victims
                go_on([other for other in left if other != number])

    go_on(list(range(len(REQUESTS))))
    assert orders >= 1
    cells.check()
    assert not cells.estate.groups


def test_one_gpu_of_every_tenant_leaves_the_others_their_nodes() -> None:
    scheduler = HivedScheduler(RACK)
    nodes = {ask(scheduler.cells, number, tenant, 1).group.seats[0].node for number, tenant in enumerate("AB")}
    assert len(nodes) == 1  # the second GPU is split off the cell that the first came from
    assert [ask(scheduler.cells, number, "C", 8).group is not None for number in (2, 3)] == [True, True]


def test_surplus_is_what_is_left_when_all_owners_have_taken() -> None:
    types = {"NODE": CellType("NODE", "GPU", 4, True), "RACK": CellType("RACK", "NODE", 2)}
    chain = chain_of(types, "RACK")
    assert surplus(chain, [0, 0, 0, 2], [0, 3, 1, 1]) == [0, 1, 1, 1]
    assert min(surplus(chain, [0, 0, 0, 2], [0, 5, 1, 1])) < 0


def test_a_broken_promise_is_an_error_of_the_program_and_changes_nothing() -> None:
    cells = HivedScheduler(pool(2, 1, a=2)).cells
    state = next(iter(cells.estate.chains.values()))

    def break_it() -> None:
        with cells.estate.undo.step():
            state.owe(cells.estate.undo, "a", 2, 1)
            cells.estate.touched[state.chain.name] = state
            settle(cells.estate)

    with pytest.raises(SafetyError, match="NODE: 2 there, 3 owned"):
        break_it()
    cells.check()


def test_a_trial_takes_back_everything() -> None:
    cells = HivedScheduler(pool(2, 2, a=1, b=1)).cells
    ask(cells, 1, "a", 1)
    before = [cell.address for cells_at in cells.estate.chains["POOL"].buddies.lists for cell in cells_at]
    with cells.trial():
        ask(cells, 2, "b", 2)
        ask(cells, 3, "a", 2, priority=5)
        cells.set_health("n1", False)
        cells.remove("g1")
    cells.check()
    assert [group.name for group in cells.groups()] == ["g1"]
    assert cells.group("g1").state is GroupState.ALLOCATED
    assert [cell.address for cells_at in cells.estate.chains["POOL"].buddies.lists for cell in cells_at] == before


def test_pods_go_to_the_node_with_the_fewest_free_leaves_and_close_together() -> None:
    cells = HivedScheduler(RACK).cells
    first = ask(cells, 1, "C", 4).group.seats[0]
    assert first.indices == [0, 1, 2, 3]
    assert ask(cells, 2, "C", 2).group.seats[0].indices == [0, 1]  # its switch: fewer free leaves than a node
    second = ask(cells, 3, "C", 2).group.seats[0]
    assert (second.node, second.indices) == (first.node, [4, 5])  # half used before whole


def test_pods_of_different_sizes_find_their_nodes_by_search() -> None:
    """Rooms of 6 and 4 for pods of 4, 3 and 3: the largest must not take the largest room."""
    cells = HivedScheduler(pool(2, 8, a=2)).cells
    for number, leaves in enumerate((2, 4)):
        cells.schedule(Request(f"g{number}", "a", (Member(1, leaves),), 0))
    nodes = {group.seats[0].node for group in cells.groups()}
    if len(nodes) == 1:  # packed together: spread them by hand
        cells.remove("g1")
        cells.schedule(Request("fill", "a", (Member(1, 6),), 0))
        cells.schedule(Request("g1", "a", (Member(1, 4),), 0))
        cells.remove("fill")
    outcome = cells.schedule(Request("mixed", "a", (Member(1, 4), Member(2, 3)), 0))
    assert outcome.group is not None
    assert [seat.size for seat in outcome.group.seats] == [4, 3, 3]


def test_unknown_groups_and_names_in_use_are_refused() -> None:
    cells = HivedScheduler(pool(1, 2, a=1)).cells
    ask(cells, 1, "a", 1)
    with pytest.raises(CellError, match="group 'g1' has leaves already"):
        ask(cells, 1, "a", 1)
    with pytest.raises(CellError, match="there is no group 'g2'"):
        cells.remove("g2")


def test_a_type_without_a_node_and_one_with_two_are_refused() -> None:
    two = {"NODE": CellType("NODE", "GPU", 4, True), "RACK": CellType("RACK", "NODE", 2, True)}
    with pytest.raises(CellError, match=r"exactly one node level .* found NODE, RACK"):
        chain_of(two, "RACK")
    with pytest.raises(CellError, match="found none"):
        chain_of({"POOL": CellType("POOL", "GPU", 4)}, "POOL")
    assert CellSite({}, (), ()).chains() == {}


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_keep_every_count_and_promise(seed: int) -> None:
    """More failures and reconfigurations than a benchmark has, and everything worked out anew at every step."""
    walk = Walk(10, seed, (50, 35, 10, 20, 3))
    for _ in range(300):
        walk.step()
        walk.cells.check()
    assert {"starts", "ends", "preempts", "fails", "heals", "reconfigures"} <= walk.counts.keys()


def test_an_elastic_gang_grows_inside_its_cluster_and_shrinks() -> None:
    cells = HivedScheduler(pool(3, 2, a=2, b=1)).cells
    group = cells.schedule(Request("e", "a", (Member(1, 2),), 0)).group
    assert group is not None
    second = cells.grow("e", 2)
    assert second is not None
    assert cells.grow("e", 2) is None  # the third node is b's
    cells.check()
    assert len({seat.node for seat in group.seats}) == 2
    cells.shrink("e", second)
    cells.check()
    assert ask(cells, 1, "a", 2).group is not None
    with pytest.raises(CellError, match="no such seat beside others"):
        cells.shrink("e", group.seats[0])


def test_growing_preempts_nobody() -> None:
    cells = HivedScheduler(pool(2, 1, a=2)).cells
    ask(cells, 1, "a", 1)
    ask(cells, 2, "a", 1, priority=-1)
    assert cells.grow("g1", 1) is None
    cells.check()
    assert cells.has("g2")


def test_opportunistic_gangs_grow_on_what_is_idle() -> None:
    cells = HivedScheduler(pool(2, 2, a=2)).cells
    ask(cells, 1, "a", 2, priority=-1)
    assert cells.grow("g1", 2) is not None
    assert ask(cells, 2, "a", 2).victims[0].name == "g1"


def test_a_job_asks_for_its_gang_in_the_virtual_cluster_of_its_queue() -> None:
    worker = Role("worker", 2, 4, Task(gpus=8, gpu_types=("V100",)))
    job = Job(
        "7",
        Gang((worker, Role("ps", 1, 1, Task(cpus_milli=1000)), Role("pair", 3, 3, members=(Role(task=Task(gpus=1)),)))),
        queue="research",
        priority=5000,
        labels=(("hived/lazy-preemption", "true"), ("hived/pinned-cell", "p1")),
    )
    assert request_of(job) == Request("7", "research", (Member(3, 1), Member(2, 8)), 1000, "V100", "p1", True)
    assert request_of(Job("8", Gang((Role(task=Task(cpus_milli=1)),)))) is None
    opportunistic = request_of(Job("9", Gang((Role(task=Task(gpus=1)),)), priority=-7))
    assert opportunistic is not None
    assert opportunistic.is_opportunistic


def test_seats_come_back_in_the_order_of_the_jobs_tasks() -> None:
    cells = HivedScheduler(pool(2, 4, a=2)).cells
    job = Job("1", Gang((Role("big", task=Task(gpus=4)), Role("small", 2, 2, Task(gpus=1)))), queue="a")
    request = request_of(job)
    assert request is not None
    group = cells.schedule(request).group
    assert group is not None
    assert [(role, seat.size) for role, seat in seats_of(job, group)] == [("big", 4), ("small", 1), ("small", 1)]
