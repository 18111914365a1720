"""Places by one word: a node, a rack, or any domain of the topology."""

from __future__ import annotations

import pytest

from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.place import UnknownPlace, nodes_at

PATHS = {"a0": ("p0", "r0"), "a1": ("p0", "r1"), "b0": ("p1", "r0"), "b1": ("p1", "r2")}
CLUSTER = Cluster(
    name="c",
    levels=("pod", "rack", "node"),
    nodes=tuple(Node(name, path=path, gpus=8, gpu_type="H100") for name, path in PATHS.items()),
)


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        (["a0"], ("a0",)),
        (["node:a0"], ("a0",)),
        (["rack:r2"], ("b1",)),
        (["r2"], ("b1",)),
        (["pod:p0"], ("a0", "a1")),
        (["rack:p1/r0"], ("b0",)),
        (["p1/r0"], ("b0",)),
        (["a1", "pod:p0", "p0"], ("a1", "a0")),
        ([], ()),
    ],
)
def test_a_word_means_a_node_or_all_nodes_of_a_domain(words: list[str], nodes: tuple[str, ...]) -> None:
    assert nodes_at(CLUSTER, words) == nodes


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("rack:r9", "there is no rack 'r9': expected one of r0, r1, r2"),
        ("pod:x", "there is no pod 'x': expected one of p0, p1"),
        ("rak:r0", "'rak:r0': there is no level 'rak': did you mean 'rack'?"),
        ("switch:s", "'switch:s': there is no level 'switch': expected one of pod, rack, node"),
        ("node:zz", "there is no node 'zz': expected one of a0, a1, b0, b1"),
        ("zz", "there is no node 'zz': expected one of a0, a1, b0, b1. A word is a node, or LEVEL:NAME"),
        ("zz", "of the levels pod, rack, node, such as pod:p0, rack:r0, rack:r1, pod:p1, rack:r2"),
        ("rack:r0", "'rack:r0' could be any of rack:p0/r0, rack:p1/r0: say which"),
        ("r0", "'r0' could be any of rack:p0/r0, rack:p1/r0: say which"),
        ("", "there is no node ''"),
        ("rack:", "there is no rack ''"),
    ],
)
def test_a_word_that_means_nothing_or_too_much_is_refused_with_what_there_is(word: str, told: str) -> None:
    with pytest.raises(UnknownPlace) as refused:
        nodes_at(CLUSTER, [word])
    assert told in str(refused.value)
