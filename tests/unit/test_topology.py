"""The topology tree as numbers, and the groups of devices inside a node."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from builders import racked, sockets
from phalanx.cluster.cluster import CLUSTER, NODE, Cluster, Link, Node, flat
from phalanx.cluster.layout import Layout
from phalanx.cluster.topology import DEFAULT_LINK, Topology


def test_nodes_are_numbered_so_that_every_domain_is_a_range() -> None:
    scattered = [("a", "p0", "r0"), ("b", "p1", "r0"), ("c", "p0", "r1"), ("d", "p0", "r0"), ("e", "p1", "r0")]
    tree = Topology(Cluster(tuple(Node(name, path) for name, *path in scattered), ("pod", "rack", NODE)))
    assert [node.name for node in tree.nodes] == ["a", "d", "c", "b", "e"]
    assert [(d.name, d.first, d.last) for d in tree.domains["pod"]] == [("p0", 0, 3), ("p1", 3, 5)]
    assert [(d.name, d.first, d.last) for d in tree.domains["rack"]] == [("r0", 0, 2), ("r1", 2, 3), ("r0", 3, 5)]


def test_racks_of_one_name_in_two_pods_are_two_racks_with_their_own_parents() -> None:
    nodes = (Node("a", ("p0", "r0")), Node("b", ("p1", "r0")))
    tree = Topology(Cluster(nodes, ("pod", "rack", NODE)))
    assert [domain.parent for domain in tree.domains["rack"]] == [0, 1]
    assert tree.domain_of["rack"] == [0, 1]


def test_domains_stand_in_the_order_in_which_the_file_first_names_them() -> None:
    tree = Topology(Cluster((Node("x", ("z",)), Node("y", ("a",)), Node("w", ("z",))), ("rack", NODE)))
    assert [domain.name for domain in tree.domains["rack"]] == ["z", "a"]
    assert [node.name for node in tree.nodes] == ["x", "w", "y"]


def test_a_node_that_names_no_rack_has_one_of_its_own() -> None:
    tree = Topology(Cluster((Node("a"), Node("b"), Node("c", ("r0",))), ("rack", NODE)))
    assert [(domain.name, domain.nodes.bit_count()) for domain in tree.domains["rack"]] == [
        ("node:a", 1),
        ("node:b", 1),
        ("r0", 1),
    ]


def test_nodes_of_a_rack_that_names_no_pod_share_a_pod_with_that_rack_and_no_other() -> None:
    named = [Node(f"a{i}", ("p0", f"r{i // 2}")) for i in range(4)]
    unnamed = [Node(f"b{i}", ("", f"r{2 + i // 2}")) for i in range(4)]
    tree = Topology(Cluster((*named, *unnamed, Node("c")), ("pod", "rack", NODE)))
    assert [(d.name, d.first, d.last) for d in tree.domains["pod"]] == [
        ("p0", 0, 4),
        ("rack:r2", 4, 6),
        ("rack:r3", 6, 8),
        ("node:c", 8, 9),
    ]
    assert [(d.name, d.last - d.first) for d in tree.domains["rack"]] == [
        *((f"r{i}", 2) for i in range(4)),
        ("node:c", 1),
    ]


def test_a_flat_cluster_has_no_domains_but_knows_the_node_and_the_whole() -> None:
    tree = Topology(flat(3, 8))
    assert tree.domains == {}
    assert tree.everything == 0b111
    assert tree.knows(NODE)
    assert tree.knows(CLUSTER)
    assert not tree.knows("rack")


def test_a_level_without_a_link_has_that_of_the_nearest_level_outside_and_else_inside() -> None:
    cluster = racked(1, 1)
    assert Topology(cluster).link("rack") == DEFAULT_LINK
    fast, slow = Link(400.0), Link(10.0)
    tree = Topology(Cluster(cluster.nodes, ("rack", NODE, "socket"), {NODE: fast, CLUSTER: slow}))
    assert tree.link("rack") == slow
    assert tree.link(NODE) == fast
    assert tree.link("socket") == fast
    only_inside = Topology(Cluster(cluster.nodes, ("rack", NODE), {NODE: fast}))
    assert only_inside.link(CLUSTER) == fast


def test_the_position_of_a_device_names_its_domain_at_every_level() -> None:
    node = {"split": (("socket", 2), ("switch", 4))}
    nodes = tuple(Node(f"n{i}", (f"r{i // 2}",), 8, **node) for i in range(4))
    tree = Topology(Cluster(nodes, ("rack", NODE, "socket", "switch")))
    assert tree.position(3, 5) == (1, 3, 1, 2, 5)
    assert tree.position(0, 0) == (0, 0, 0, 0, 0)


def test_nodes_of_one_shape_share_their_layout() -> None:
    tree = Topology(sockets(3))
    assert tree.layouts[0] is tree.layouts[2]


EIGHT = Layout(8, (("socket", 2), ("switch", 4)))
"""Sockets 0-3 and 4-7; switches 0-1, 2-3, 4-5, 6-7."""


def devices(*numbers: int) -> int:
    return sum(1 << number for number in numbers)


@pytest.mark.parametrize(
    ("free", "count", "picked", "because"),
    [
        (range(8), 2, (0, 1), "a pair under one switch"),
        (range(8), 4, (0, 1, 2, 3), "one whole socket"),
        (range(8), 8, range(8), "everything"),
        ((0, 4, 5, 6, 7), 1, (0,), "the socket with least left, so that the other stays whole"),
        ((0, 1, 2, 4, 5), 2, (4, 5), "the socket it fills, not the one it would break"),
        ((1, 2, 3, 6), 2, (2, 3), "the whole pair under one switch of the fuller socket"),
        ((0, 1, 2, 4, 5, 6), 4, (0, 1, 2, 6), "no socket has four: one used up, of the other what breaks no pair"),
        ((3, 4), 2, (3, 4), "all there is"),
    ],
)
def test_devices_are_picked_close_together_and_leave_other_groups_whole(
    free: tuple[int, ...], count: int, picked: tuple[int, ...], because: str
) -> None:
    assert EIGHT.pick(devices(*free), count) == devices(*picked), because


def test_the_fullest_group_that_has_enough_is_used_when_one_group_is_required() -> None:
    free = devices(0, 4, 5, 6)
    assert EIGHT.pick_within("socket", free, 1) == devices(0)
    assert EIGHT.pick_within("socket", free, 3) == devices(4, 5, 6)
    assert EIGHT.pick_within("socket", free, 4) == 0
    assert EIGHT.pick_within("switch", free, 2) == devices(4, 5)
    assert EIGHT.pick_within("nvlink", free, 1) == 0


def test_a_node_whose_devices_do_not_divide_evenly_still_has_every_device_in_one_group() -> None:
    layout = Layout(5, (("socket", 2),))
    assert layout.levels["socket"] == (devices(0, 1), devices(2, 3, 4))


HALF: Any = 0.5


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: flat(1, -8), "node n0: gpus must be a whole number of at least 0, got -8"),
        (lambda: flat(1, HALF), "node n0: gpus must be a whole number of at least 0, got 0.5"),
        (lambda: flat(-1, 8), "nodes must be a whole number of at least 0, got -1"),
        (lambda: flat(1, 8, "X", nan), "node n0: gpu_memory_gb must be a finite number"),
        (lambda: Node("n0", price_usd_h=nan), "node n0: price_usd_h must be a finite number"),
        (lambda: Cluster((Node("a", ("p", "r"), 8),), ("rack", NODE)), "node a: path .* names more levels than"),
        (lambda: Cluster((Node("a"),), ("rack",)), "the levels of a cluster contain 'node'"),
    ],
)
def test_what_no_cluster_can_have_is_refused_where_it_is_made(build: Callable[[], Cluster], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        build()
