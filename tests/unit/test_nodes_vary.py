"""The same trace on clusters of other sizes: nodes come and go, the jobs stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

import phalanx
from phalanx.cluster.cluster import Cluster, Node, flat
from phalanx.cluster.maintenance import Maintenance
from phalanx.cluster.topology import Topology
from phalanx.simulate.studies.nodes import NodesError, with_nodes
from phalanx.simulate.traces.load import LoadError, load_of

RACKS = Cluster(
    tuple(Node(f"n{i}", ("p", f"r{i // 2}"), 8, "H100") for i in range(4)), ("pod", "rack", "node"), name="racks"
)


def test_nodes_that_are_added_fill_racks_as_large_as_those_that_there_are() -> None:
    larger = with_nodes(RACKS, 9)
    assert larger.gpus == 72
    assert larger.nodes[:4] == RACKS.nodes
    assert [node.path for node in larger.nodes[4:]] == [
        *(("p", "rack-more1"), ("p", "rack-more1"), ("p", "rack-more2"), ("p", "rack-more2")),
        ("p", "rack-more3"),
    ]
    assert len({node.name for node in larger.nodes}) == 9
    Topology(larger)


def test_the_last_nodes_are_left_out_and_with_them_their_maintenance() -> None:
    windows = (Maintenance("one", ("n0", "n3"), 0, 5), Maintenance("other", ("n3",), 0, 5))
    smaller = with_nodes(replace(RACKS, maintenance=windows), 3)
    assert [node.name for node in smaller.nodes] == ["n0", "n1", "n2"]
    assert smaller.maintenance == (Maintenance("one", ("n0",), 0, 5),)


def test_nodes_of_other_kinds_stay() -> None:
    mixed = Cluster((Node("login"), Node("a0", (), 8, "A100"), Node("h0", (), 8, "H100"), Node("h1", (), 8, "H100")))
    assert [node.gpu_type for node in with_nodes(mixed, 5).nodes] == ["", "A100", "H100", "H100", "H100"]
    assert [node.gpu_type for node in with_nodes(mixed, 5, like="a0").nodes] == ["", "A100", "H100", "H100", "A100"]
    assert [node.gpu_type for node in with_nodes(mixed, 3).nodes] == ["", "A100", "H100"]
    with pytest.raises(NodesError, match="1 nodes: the cluster has 2 of other kinds than h0, which stay"):
        with_nodes(mixed, 1)
    with pytest.raises(NodesError, match="there is no node 'x'"):
        with_nodes(mixed, 5, like="x")


def test_the_same_size_is_the_same_cluster() -> None:
    assert with_nodes(RACKS, 4) == RACKS


def test_the_load_does_not_move_with_the_nodes() -> None:
    results = phalanx.compare(
        flat(4, 8), "synthetic:jobs=80,load=1.2,shape=gavel", ["backfill"], vary="nodes=3:5", load="+10%"
    )
    assert [result.setup["nodes"] for result in results] == [3, 4, 5]
    submitted = [[(job.job_id, job.submit_s, job.gpus) for job in result.jobs] for result in results]
    assert submitted[0] == submitted[1] == submitted[2]
    queued = [result.summary["queued_s"]["mean"] for result in results]
    assert queued[0] > queued[1] > queued[2]


@pytest.mark.parametrize(("text", "load"), [("0.9", 0.9), ("+30%", 0.78), ("-10%", 0.54), ("+0%", 0.6)])
def test_a_load_is_a_number_or_a_change(text: str, load: float) -> None:
    assert load_of(text, 0.6) == pytest.approx(load)


@pytest.mark.parametrize("text", ["", "+30", "30%", "a", "-100%", "0", "-1", "nan", "+1e999%"])
def test_a_load_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match="expected"):
        load_of(text, 0.6)
