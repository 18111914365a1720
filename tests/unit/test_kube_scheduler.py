"""The scheduler between the watch and the engine: orders of events that a real API server gives only by chance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kube_objects import as_group, as_node, as_pod, group, node, pod
from kube_turns import Site, gang, on
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Journal
from phalanx.engine.turn import verify
from phalanx.kube.api.reflector import Changed
from phalanx.kube.binder import Evicted
from phalanx.kube.gangs.groups import NATIVE, PLUGINS
from phalanx.kube.jobs.tracked import Step
from phalanx.kube.mirror import NODES, PODS
from phalanx.kube.nodes import health_of
from phalanx.kube.objects.node import KubeNode
from phalanx.kube.objects.pod import Pod


def test_a_gang_is_bound_once_all_of_it_is_there() -> None:
    site = Site(groups=[group("g", 2)])
    first, second = gang(2)
    site.say(first)
    assert site.asked.binds == []
    assert site.asked.lines["g0"].startswith("2 pods of PodGroup default/g (scheduling.x-k8s.io) start together, and 1")
    site.say(second)
    assert [places for _, _, places in site.asked.binds] == [{"g0": "n0", "g1": "n1"}]


def mixed(number: int = 0) -> tuple[Pod, ...]:
    """A gang of a master for CPU nodes and a worker for GPU nodes, which are tainted."""
    taint = [{"key": "gpu", "operator": "Exists"}]
    written = (
        pod(f"m{number}", 0, "g", nodeSelector={"pool": "cpu"}),
        pod(f"w{number}", 8, "g", tolerations=taint, nodeSelector={"pool": "gpu"}),
    )
    return tuple(map(as_pod, written))


def mixed_site(*pods: Pod) -> Site:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    nodes = [
        node("n0", 8, {"pool": "gpu"}, taints=taints),
        node("n1", 8, {"pool": "gpu"}, taints=taints),
        node("n2", 0, {"pool": "cpu"}),
    ]
    return Site(nodes, pods, [group("g", 2)])


def test_a_gang_has_a_master_on_cpu_nodes_and_workers_on_gpu_nodes() -> None:
    site = mixed_site(*mixed())
    assert [places["m0"] for _, _, places in site.asked.binds] == ["n2"]
    assert site.asked.binds[0][2]["w0"] in ("n0", "n1")


def test_a_gang_of_two_kinds_of_nodes_is_known_after_a_restart() -> None:
    master, worker = mixed()
    site = mixed_site(on(master, "n2", job="g@1"), on(worker, "n1", job="g@1"))
    (record,) = site.state.jobs.values()
    assert sorted(record.attempt.placement.nodes) == ["n1", "n2"]


def test_only_a_pod_for_the_same_nodes_stands_in_for_one_that_failed() -> None:
    site = mixed_site(*mixed())
    places = site.asked.binds[0][2]
    master, worker = (on(each, places[each.metadata.name]) for each in mixed())
    site.say(master, worker)
    site.bound()
    site.say(msgspec.structs.replace(worker, status=msgspec.structs.replace(worker.status, phase="Failed")))
    elsewhere, alike = mixed(1)
    site.say(elsewhere)
    assert site.asked.binds[-1][2] == {"m1": "n2"}
    site.say(alike)
    assert site.asked.binds[-1][2] == {"w1": places["w0"]}


def test_a_group_that_comes_after_its_pods_is_waited_for() -> None:
    site = Site(pods=gang(2))
    assert site.asked.lines["g1"] == "PodGroup default/g (scheduling.x-k8s.io) is not there yet"
    site.mirror.take(Changed(PLUGINS, as_group(group("g", 2))))
    site.turn()
    assert len(site.asked.binds) == 1


def test_a_gang_that_does_not_fit_says_what_it_lacks() -> None:
    site = Site(nodes=1, pods=gang(2), groups=[group("g", 2)])
    assert site.asked.binds == []
    assert "no part of this cluster could ever hold it" in site.asked.lines["g0"]


def test_pods_beyond_the_least_start_each_by_itself_after_the_gang() -> None:
    site = Site(nodes=2, pods=gang(3, gpus=4), groups=[group("g", 2)])
    assert [sorted(places) for _, _, places in site.asked.binds] == [["g0", "g1"]]
    site.bound()
    assert [sorted(places) for _, _, places in site.asked.binds] == [["g0", "g1"], ["g2"]]


def test_of_ten_thousand_pods_at_once_whole_gangs_are_bound_and_all_others_are_told_why() -> None:
    """1,250 gangs of 8, of which 40 find room. The members of all come in turns."""
    site = Site(nodes=40, groups=[group(f"g{i}", 8) for i in range(1250)])
    site.say(*(as_pod(pod(f"g{i}-{rank}", 1, f"g{i}")) for rank in range(8) for i in range(1250)))
    assert [len(places) for _, _, places in site.asked.binds] == [8] * 40
    for _ in range(100):
        if len(site.asked.lines) == 10_000 - 320:
            break
        site.turn()
    bound = {name for _, _, places in site.asked.binds for name in places}
    assert bound.isdisjoint(site.asked.lines)
    assert len(site.asked.lines) == 10_000 - len(bound)


def test_pods_of_other_schedulers_count_as_used() -> None:
    foreign = as_pod(pod("theirs", 4, schedulerName="default-scheduler"), node="n0", phase="Running")
    site = Site(nodes=1, pods=[foreign, as_pod(pod("ours", 8))])
    assert site.asked.binds == []
    site.say(foreign, gone=True)
    assert [places for _, _, places in site.asked.binds] == [{"ours": "n0"}]


def test_a_gated_pod_is_scheduled_once_its_gates_are_gone() -> None:
    site = Site(pods=[as_pod(pod("a", schedulingGates=[{"name": "wait"}]))])
    assert site.asked.binds == []
    site.say(as_pod(pod("a")))
    assert len(site.asked.binds) == 1


def test_a_gang_of_which_a_bind_failed_is_formed_anew_without_the_pods_that_were_deleted() -> None:
    """The watch still shows the deleted pod as pending: were it counted, half a gang would be bound."""
    site = Site(pods=gang(2), groups=[group("g", 2)])
    site.bound("POST …: 409", undone=("g0",))
    assert len(site.asked.binds) == 1
    assert site.asked.lines["g1"].endswith("start together, and 1 are there")
    site.say(gang(2)[0], gone=True)
    site.say(as_pod(pod("g0", 8, "g"), uid="another"))
    assert sorted(site.asked.binds[-1][2]) == ["g0", "g1"]
    assert len(site.asked.binds) == 2


def test_a_gang_of_which_no_pod_was_bound_is_tried_again_after_a_pause() -> None:
    site = Site(pods=gang(2), groups=[group("g", 2)])
    site.bound("the API server does not answer")
    assert len(site.asked.binds) == 1
    site.now += 2_000
    site.turn()
    assert [attempt for _, attempt, _ in site.asked.binds] == [1, 2]


def test_a_gang_that_ends_frees_its_nodes_for_the_next() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.bound()
    site.say(as_pod(pod("next", 8)))
    assert len(site.asked.binds) == 1
    site.say(*(on(each, f"n{i}", "Succeeded") for i, each in enumerate(pods)))
    assert sorted(site.asked.binds[-1][2]) == ["next"]


def test_a_more_important_gang_has_a_whole_gang_evicted_and_takes_its_place_when_that_is_gone() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    job = site.asked.binds[0][0]
    site.bound()
    running = [on(each, f"n{i}") for i, each in enumerate(pods)]
    site.say(*running)
    site.say(as_pod(pod("urgent", 8, priority=1000)))
    assert site.asked.evictions == [(job, 1, ["g0", "g1"], [])]
    site.scheduler.answer(Evicted(job, 1))
    site.say(running[0], gone=True)
    assert len(site.asked.binds) == 1
    site.say(running[1], gone=True)
    assert sorted(site.asked.binds[-1][2]) == ["urgent"]


def test_an_eviction_that_a_budget_refuses_is_asked_for_again() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    job = site.asked.binds[0][0]
    site.bound()
    site.say(*(on(each, f"n{i}") for i, each in enumerate(pods)))
    site.say(as_pod(pod("urgent", 8, priority=1000)))
    site.scheduler.answer(Evicted(job, 1, "pod default/g0 may not be evicted"))
    site.turn()
    site.now += 2_000
    site.turn()
    assert [evicted for _, _, evicted, _ in site.asked.evictions] == [["g0", "g1"]] * 2


def test_pods_that_come_for_a_gang_that_is_being_evicted_are_a_gang_of_their_own() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    job = site.asked.binds[0][0]
    site.bound()
    running = [on(each, f"n{i}") for i, each in enumerate(pods)]
    site.say(*running)
    site.say(as_pod(pod("urgent", 8, priority=1000)))
    site.scheduler.answer(Evicted(job, 1, "pod default/g1 may not be evicted"))
    site.say(running[0], gone=True)
    site.say(as_pod(pod("g2", 8, "g"), created=30))
    assert len(site.asked.binds) == 1
    assert site.asked.lines["g2"].endswith("start together, and 1 are there")


def test_a_gang_on_a_node_that_is_deleted_is_undone_whole() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.mirror.take(Changed(NODES, as_node(node("n1")), gone=True))
    site.turn()
    assert site.asked.evictions == []
    site.say(*(on(each, f"n{i}", "Pending") for i, each in enumerate(pods)))
    site.bound()
    assert [(evicted, gone) for _, _, evicted, gone in site.asked.evictions] == [(["g0"], ["g1"])]


def test_a_scheduler_that_starts_anew_knows_what_is_bound() -> None:
    bound = [on(each, f"n{i}", job="default/g@1") for i, each in enumerate(gang(2))]
    site = Site(pods=bound, groups=[group("g", 2)])
    assert site.asked.binds == []
    assert site.state.free_gpus == 0
    assert [(each.job, each.step) for each in site.scheduler.roster.tracked.values()] == [("default/g@1", Step.BOUND)]
    site.say(as_pod(pod("urgent", 8, priority=1000)))
    assert [evicted for _, _, evicted, _ in site.asked.evictions] == [["g0", "g1"]]


def test_half_a_gang_that_a_killed_scheduler_left_is_released() -> None:
    first, second = gang(2)
    site = Site(pods=[on(first, "n0"), second], groups=[group("g", 2)])
    assert site.asked.deleted == ["g0"]
    assert site.asked.binds == []


def test_a_gang_that_lost_a_pod_is_not_taken_for_half_a_gang() -> None:
    first, _ = gang(2)
    later = as_pod(pod("g2", 8, "g"), created=30)
    site = Site(pods=[on(first, "n0"), later], groups=[group("g", 2)])
    assert site.asked.deleted == []
    assert [places for _, _, places in site.asked.binds] == [{"g2": "n1"}]


def test_a_pod_that_comes_for_one_that_failed_is_bound_in_its_place() -> None:
    """The gang still holds the place: in a full cluster nothing else would ever become free for the newcomer."""
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.bound()
    site.say(on(pods[0], "n0"), on(pods[1], "n1", "Failed"))
    newcomer = as_pod(pod("g2", 8, "g"), created=30)
    site.say(newcomer)
    assert [places for _, _, places in site.asked.binds[1:]] == [{"g2": "n1"}]
    site.bound()
    site.say(on(pods[0], "n0", "Succeeded"), on(newcomer, "n1"))
    assert site.state.free_gpus == 0
    site.say(on(newcomer, "n1", "Succeeded"))
    assert site.state.free_gpus == 16


def test_a_pod_with_the_name_of_one_that_was_deleted_is_bound_in_its_place() -> None:
    """Controllers with names by number, such as those of Volcano's Jobs, make it under the same name."""
    site = Site(groups=[group("g", 2)])
    first, second = gang(2)
    site.say(first, second)
    site.bound()
    site.say(on(first, "n0"), on(second, "n1"))
    site.say(on(second, "n1"), gone=True)
    site.say(as_pod(pod("g1", 8, "g"), uid="another"))
    assert site.asked.binds[-1][2] == {"g1": "n1"}
    assert len(site.asked.binds) == 2


@pytest.mark.parametrize(("phase", "minutes"), [("Failed", 10), ("Succeeded", 1)])
def test_places_of_pods_that_have_ended_are_given_back_after_a_while(phase: str, minutes: int) -> None:
    """One pod that stays would hold the devices of all others for as long, and no quota would count them."""
    pods = gang(4, 4)
    site = Site(pods=pods, groups=[group("g", 4)])
    site.bound()
    where = site.asked.binds[0][2]
    site.say(*(on(each, where[each.metadata.name], "Running" if i == 1 else phase) for i, each in enumerate(pods)))
    site.say(as_pod(pod("next", 8)))
    site.now += 60_000 * minutes - 1000
    site.turn()
    assert site.state.free_gpus == 0
    assert len(site.asked.binds) == 1
    site.now += 1000
    site.turn()
    assert [sorted(places) for _, _, places in site.asked.binds[1:]] == [["next"]]
    assert site.asked.binds[1][2]["next"] != where["g1"]
    assert site.state.free_gpus == 4
    # What is left of it is still a job that makes way, and ends.
    site.say(as_pod(pod("urgent", 8, priority=100)))
    assert site.asked.evictions[-1][2] in (["g1"], ["next"])
    assert verify(Journal.read(site.journal.getvalue().splitlines())).seq == site.state.seq


def test_pods_that_come_after_their_place_was_given_back_start_by_themselves() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.bound()
    site.say(on(pods[0], "n0"), on(pods[1], "n1", "Failed"))
    site.now += 600_000
    site.turn()
    assert site.state.free_gpus == 8
    site.say(as_pod(pod("g2", 8, "g"), created=30))
    assert site.asked.binds[-1][2] == {"g2": "n1"}
    site.bound()
    site.say(on(pods[0], "n0", "Succeeded"))
    assert site.state.free_gpus == 8


def test_a_stand_in_that_cannot_be_bound_leaves_the_place_to_the_next() -> None:
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.bound()
    site.say(on(pods[0], "n0"), on(pods[1], "n1", "Failed"))
    first = as_pod(pod("g2", 8, "g"), created=30)
    site.say(first)
    site.mirror.take(Changed(PODS, first, gone=True))
    site.bound("404")
    site.say(as_pod(pod("g3", 8, "g"), created=40))
    assert [places for _, _, places in site.asked.binds[1:]] == [{"g2": "n1"}, {"g3": "n1"}]


def test_a_pending_gang_whose_group_wants_more_pods_waits_for_them() -> None:
    site = Site(nodes=1, pods=gang(2), groups=[group("g", 2)])
    site.mirror.take(Changed(PLUGINS, as_group(group("g", 3))))
    site.turn()
    assert site.asked.lines["g0"].endswith("start together, and 2 are there")


def test_a_pod_that_cannot_be_read_gets_a_line_and_harms_no_other() -> None:
    odd = pod("odd")
    odd["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "many"
    site = Site(pods=[as_pod(odd), as_pod(pod("fine"))])
    assert site.asked.lines["odd"] == "pod default/odd: expected a quantity such as 16, 500m or 64Gi, got 'many'"
    assert [sorted(places) for _, _, places in site.asked.binds] == [["fine"]]


def test_a_pod_for_gpus_that_no_node_has_is_placed_when_such_a_node_comes() -> None:
    site = Site(nodes=0, pods=[as_pod(pod("a"))])
    assert site.asked.lines["a"] == "no node has nvidia.com/gpu"
    site.mirror.take(Changed(NODES, as_node(node("n0"))))
    site.turn()
    assert [places for _, _, places in site.asked.binds] == [{"a": "n0"}]


def test_pods_of_a_pending_gang_that_are_deleted_are_waited_for_again() -> None:
    pods = gang(2, gpus=8)
    site = Site(nodes=2, pods=[on(as_pod(pod("runs", 8)), "n0"), *pods], groups=[group("g", 2)])
    assert site.asked.binds == []
    site.say(pods[1], gone=True)
    assert site.asked.lines["g0"].endswith("and 1 are there")


def test_a_foreign_pod_on_the_node_of_a_gang_does_not_drive_it_off() -> None:
    """What is left of named resources becomes less, and the gang holds only what it asked for."""
    pods = gang(2)
    site = Site(pods=pods, groups=[group("g", 2)])
    site.bound()
    site.say(*(on(each, f"n{i}") for i, each in enumerate(pods)))
    theirs = [as_pod(pod(f"t{i}", 0, schedulerName="default-scheduler"), node="n0") for i in range(100)]
    site.say(*theirs)
    assert site.asked.evictions == []


def test_a_turn_looks_only_at_nodes_on_which_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(nodes=50)
    looked_at: list[str] = []

    def count(each: KubeNode) -> tuple[Health, str]:
        looked_at.append(each.metadata.name)
        return health_of(each)

    monkeypatch.setattr("phalanx.kube.capacity.health_of", count)
    site.say(as_pod(pod("theirs", 4, schedulerName="default-scheduler"), node="n7", phase="Running"))
    assert looked_at == ["n7"]


@pytest.mark.parametrize(
    ("resource", "left"), [("nvidia.com/gpu", "0"), ("memory", "2Gi"), ("cpu", "1"), ("pods", "2"), ("rdma/hca", "0")]
)
def test_a_gang_stays_on_a_node_that_says_it_has_less_and_nothing_new_goes_there(resource: str, left: str) -> None:
    """A device plugin that starts again says for a while that there are no devices."""
    pods = tuple(as_pod(asking_hca(pod(f"g{i}", 2, "g"))) for i in range(2))
    site = Site(nodes=0, groups=[group("g", 2)])
    site.mirror.take(Changed(NODES, as_node(with_hca(node("n0")))))
    site.say(*pods)
    site.bound()
    site.say(*(on(each, "n0") for each in pods))
    smaller = with_hca(node("n0"))
    smaller["status"]["allocatable"][resource] = left
    site.mirror.take(Changed(NODES, as_node(smaller)))
    site.turn()
    assert site.asked.evictions == []
    site.say(*(as_pod(asking_hca(pod(f"new{i}", 1))) for i in range(2)))
    assert len(site.asked.binds) == 1
    site.say(*(on(each, "n0", "Succeeded") for each in pods))
    site.mirror.take(Changed(NODES, as_node(with_hca(node("n0")))))
    site.turn()
    assert len(site.asked.binds) == 3


def with_hca(written: dict[str, Any]) -> dict[str, Any]:
    written["status"]["allocatable"]["rdma/hca"] = "4"
    return written


def asking_hca(written: dict[str, Any]) -> dict[str, Any]:
    written["spec"]["containers"][0]["resources"]["requests"]["rdma/hca"] = "1"
    return written


def test_a_label_that_no_node_has_any_more_stays_a_level_while_a_gang_asks_for_it() -> None:
    """Were the changed cluster refused for its sake, nothing that changes later would be heard of."""
    zone = "topology.kubernetes.io/zone"
    native = {
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": zone}]}}
    }
    native["metadata"] = {"name": "g", "namespace": "default"}
    pods = [as_pod(pod(f"g{i}", 8, schedulingGroup={"podGroupName": "g"})) for i in range(2)]
    site = Site(nodes=0)
    site.mirror.take(Changed(NATIVE, as_group(native)))
    for name in ("n0", "n1"):
        site.mirror.take(Changed(NODES, as_node(node(name, labels={zone: "a"}))))
    site.say(*pods)
    site.bound()
    site.say(*(on(each, f"n{i}") for i, each in enumerate(pods)))
    for name in ("n0", "n1", "n2"):
        site.mirror.take(Changed(NODES, as_node(node(name))))
    site.turn()
    assert site.asked.evictions == []
    site.say(as_pod(pod("next", 8)))
    assert site.asked.binds[-1][2] == {"next": "n2"}
