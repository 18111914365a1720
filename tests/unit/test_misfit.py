"""Misfits: a job that never fits is told by which rule, what it asks for there and the most there is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import World, a_job, of_roles, racked, sockets, within, workers
from phalanx.cluster.capacity import Capacity
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Node, Taint, flat
from phalanx.cluster.topology import Topology
from phalanx.engine.why.change import ChangeKind
from phalanx.engine.why.why import why
from phalanx.placement.fit import Fit
from phalanx.placement.place import ever
from phalanx.placement.refusals.misfit import misfit
from phalanx.protocol.reason import Reason
from phalanx.simulate.figures.never_fit import misfit_words
from phalanx.words.change import sooner
from phalanx.words.evidence import evidence
from phalanx.words.reason import because
from phalanx.workload.gang import Role, Task
from phalanx.workload.job import Job
from phalanx.workload.share import fraction_ask
from phalanx.workload.toleration import Toleration

NEVER = "no part of this cluster could ever hold it"


def told(cluster: Cluster, job: Job) -> str:
    """What is said of a job that waits on an idle cluster."""
    world = World(cluster)
    world.submit(job)
    assert world.reason(job.id) is Reason.NEVER_FITS
    return because(why(world.state, job.id))


def two_types() -> Cluster:
    """Two nodes with sockets of 4 H100s, two with sockets of 2 A100s; the first of each has the label zone=a."""
    wide, narrow = (("socket", 2),), (("socket", 4),)
    nodes = [Node(f"h{i}", (), 8, "H100", split=wide) for i in range(2)]
    nodes += [Node(f"a{i}", (), 8, "A100", split=narrow) for i in range(2)]
    labelled = [replace(node, labels=(("zone", "a"),)) if node.name.endswith("0") else node for node in nodes]
    return Cluster(tuple(labelled), (NODE, "socket"))


@pytest.mark.parametrize(
    ("cluster", "job", "words"),
    [
        (
            sockets(2),
            a_job("j", 5, 1, "socket"),
            "it asks for 5 GPUs in one socket, and the largest socket of the cluster has 4",
        ),
        (
            flat(4, 8),
            a_job("j", 6, 2, "node"),
            "it asks for 12 GPUs in one node, and the largest node of the cluster has 8",
        ),
        (
            racked(2, 2),
            a_job("j", 5, 3, "rack"),
            "it asks for 3 tasks of 5 GPUs in one rack, and the largest rack of the cluster holds 2 of them",
        ),
        (flat(2, 8), a_job("j", 8, 9), "it asks for 72 GPUs, and the cluster has 16"),
        (
            racked(2, 2, cpus_milli=32_000),
            a_job("j", 2, 3, "rack", task={"cpus_milli": 20_000}),
            "it asks for 3 tasks of 2 GPUs in one rack, and the largest rack of the cluster holds 2 of them, by CPUs",
        ),
        (
            racked(3, 2),
            of_roles("j", Role("cell", 4, 4, members=(workers(2, 8),), topology=within("rack"))),
            "it asks for 2 tasks of 8 GPUs in one rack for each cell, 4 times, and the cluster has room for 3",
        ),
        (
            racked(3, 2),
            of_roles("j", Role("cell", 2, 2, members=(workers(3, 8),), topology=within("rack"))),
            "it asks for 24 GPUs in one rack for each cell, and the largest rack of the cluster has 16",
        ),
        (
            sockets(1, gpu_type="H100", gpu_memory_gb=80.0),
            a_job("j", 1, 9, "socket", task={"share": fraction_ask(500)}),
            "it asks for 9 tasks in one socket, and the largest socket of the cluster holds 8 of them",
        ),
        (
            # Half of the compute, but more than half of the memory: each device holds one.
            sockets(1, gpu_type="H100", gpu_memory_gb=80.0),
            a_job("j", 1, 5, "socket", task={"share": fraction_ask(500, 50_000)}),
            "it asks for 5 tasks in one socket, and the largest socket of the cluster holds 4 of them",
        ),
    ],
)
def test_the_rule_what_is_asked_and_the_most_there_is_are_told(cluster: Cluster, job: Job, words: str) -> None:
    assert told(cluster, job) == f"{NEVER}: {words}"


def test_only_domains_that_the_other_rules_allow_count() -> None:
    job = a_job("j", 3, 1, "socket", task={"gpu_types": ("A100",)})
    words = "it asks for 3 GPUs in one socket, and the largest socket that its other rules allow of the cluster"
    assert told(two_types(), job) == f"{NEVER}: {words} has 2 (of 4 nodes: 2 of another GPU type)"
    labelled = a_job("j", 8, 2, node_selector=(("zone", "b"), ("zone", "a")))
    assert told(two_types(), labelled).startswith(f"{NEVER} (of 4 nodes: 4 without the label zone=b")
    both = a_job("j", 8, 3, node_selector=(("zone", "a"),))
    asked = "it asks for 24 GPUs, and what its other rules allow of the cluster has 16"
    assert told(two_types(), both) == f"{NEVER}: {asked} (of 4 nodes: 2 without the label zone=a)"


def test_taints_of_one_key_are_counted_together() -> None:
    nodes = tuple(Node(f"n{i}", (), 8, taints=(Taint("pool", value),)) for i, value in enumerate(("a", "b", "c")))
    tolerant = a_job("j", 8, 2, tolerations=(Toleration("pool", "a"),))
    words = "it asks for 16 GPUs, and what its other rules allow of the cluster has 8"
    assert told(Cluster(nodes), tolerant) == (
        f"{NEVER}: {words} (of 3 nodes: 2 with the taint pool, which it does not tolerate)"
    )


def test_the_task_that_no_node_takes_is_told_though_another_is_larger() -> None:
    job = of_roles("j", workers(1, 8), Role("loader", task=Task(cpus_milli=900_000)))
    nodes = Cluster((Node("n0", (), 8, cpus_milli=64_000),))
    assert told(nodes, job) == f"{NEVER} (of 1 node: 1 with too few CPUs)"


def test_what_is_free_for_another_task_is_not_told_of_a_job_with_a_task_that_no_node_takes() -> None:
    world = World(flat(2, 8))
    world.submit(of_roles("j", workers(2, 4), Role("loader", task=Task(1, gpu_types=("X",)))))
    answer = why(world.state, "j")
    assert answer.refusal is not None
    assert (answer.refusal.gpus_free, answer.free, answer.block) == (0, (), None)


def test_of_a_job_that_never_fits_it_is_not_told_what_others_hold() -> None:
    world = World(sockets(2))
    world.run(a_job("a", 8), a_job("b", 8))
    world.submit(a_job("j", 5, 1, "socket"))
    answer = why(world.state, "j")
    assert "free GPUs" not in because(answer)
    assert answer.changes == ()
    assert sooner(answer) == ""
    then = "with all in one node instead of one socket, it would still wait: too few GPUs are free"
    assert evidence(answer, 0)["then"] == then


def test_where_it_would_start_at_once_the_ways_are_a_wider_rule_and_fewer_gpus() -> None:
    world = World(sockets(2))
    world.submit(a_job("j", 5, 1, "socket"))
    answer = why(world.state, "j")
    assert sooner(answer) == "it would start now with all in one node instead of one socket"
    assert evidence(answer, 0)["other_ways"] == "with 4 GPUs a task instead of 5 (4 in all)"


def test_where_several_things_are_wrong_no_one_change_is_offered() -> None:
    world = World(flat(2, 8))
    world.submit(a_job("j", 16, 1, node_selector=(("zone", "z"),)))
    assert why(world.state, "j").next is None


def test_the_smallest_of_many_changes_that_would_ever_do_is_found() -> None:
    world = World(flat(2, 8))
    world.run(a_job("a", 8), a_job("b", 8))
    world.submit(a_job("j", 1, 500))
    after = why(world.state, "j").next
    assert after is not None
    assert (after.change.kind, after.change.amount, after.reason) == (ChangeKind.REPLICAS, 16, Reason.GPUS)


clusters = st.builds(
    lambda nodes, split: Cluster(
        tuple(
            Node(f"n{i}", (f"r{rack}",), gpus, split=(("socket", split),), cpus_milli=cpus * 1000)
            for i, (rack, gpus, cpus) in enumerate(nodes)
        ),
        ("rack", NODE, "socket"),
    ),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from((2, 4, 8)), st.integers(1, 16)), min_size=1, max_size=6),
    st.integers(1, 2),
)
jobs = st.builds(
    lambda gpus, count, cpus, gang, role: of_roles(
        "j", workers(count, gpus, within(role), cpus_milli=cpus * 1000), required=gang
    ),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 8),
    st.sampled_from(("", "socket", NODE, "rack", CLUSTER)),
    st.sampled_from(("", "socket", NODE)),
)


@given(cluster=clusters, job=jobs)
def test_of_equal_tasks_that_some_node_takes_something_is_too_small_if_and_only_if_they_never_fit(
    cluster: Cluster, job: Job
) -> None:
    fit = Fit(Capacity(Topology(cluster)))
    if fit.ask(job.gang.roles[0].task, job).eligible:
        found = misfit(fit, job)
        if ever(fit, job):
            assert found is None
        elif not (job.gang.topology.required and job.gang.roles[0].topology.required):
            # With two rules at once each may hold alone.
            assert found is not None
            assert found.gpus > found.gpus_most or found.tasks > found.tasks_most or found.domains > found.domains_most
            assert misfit_words(found, len(cluster.nodes)).startswith("asks for ")
