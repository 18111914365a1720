"""The cluster file: what an operator writes, and the cluster it describes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.cluster.catalogue import instances
from phalanx.cluster.cluster import Cluster, Link, Node, Overcommit, StorageTier, Taint
from phalanx.cluster.formats.gpu_type import read_gpu_type
from phalanx.cluster.formats.limits import CLUSTER_LIMITS, NODES_MAX
from phalanx.cluster.formats.native import KEYS, read_cluster
from phalanx.cluster.formats.settings import is_settings, read_settings
from phalanx.document import DocumentError, read_document

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "cluster-file.md").read_text(encoding="utf-8")


def cluster(text: str) -> Cluster:
    return read_cluster(text, "cluster.yaml")


def error_of(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        read_cluster(text, "cluster.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_group_of_nodes_becomes_nodes() -> None:
    read = cluster("nodes: [{count: 2, gpus: 8, gpu_type: h100, cpus: 96, memory_gb: 1024, nics: 8, price: 12.5}]")
    assert read.nodes == tuple(
        Node(
            name,
            gpus=8,
            gpu_type="H100",
            gpu_memory_gb=80.0,
            cpus_milli=96_000,
            memory_mb=1_048_576,
            nics=8,
            price_usd_h=12.5,
        )
        for name in ("n0", "n1")
    )
    assert (read.levels, read.policy, read.name) == (("node",), "phalanx", "cluster")


def test_no_list_of_the_file_is_read_further_than_a_cluster_may_have_nodes() -> None:
    assert CLUSTER_LIMITS.items == NODES_MAX


def test_a_gpu_type_that_looks_like_one_of_the_site_and_the_catalogue_is_named_once() -> None:
    with pytest.raises(DocumentError) as caught:
        read_gpu_type(read_document("H10", "job.yaml", CLUSTER_LIMITS), ["H100"])
    assert str(caught.value).count("H100 ") + str(caught.value).count("H100?") == 1


def test_nodes_are_numbered_on_from_group_to_group() -> None:
    read = cluster("nodes: [{count: 2}, {count: 1}, {count: 2, name: g}, {name: head}, {count: 2, name: 'x{}-b'}]")
    assert [node.name for node in read.nodes] == ["n0", "n1", "n2", "g0", "g1", "head", "x0-b", "x1-b"]


def test_levels_are_those_the_file_uses_in_the_order_everybody_knows() -> None:
    read = cluster("nodes: [{gpus: 8, switches: 4, rack: r1}, {gpus: 8, pod: p1, sockets: 2}]")
    assert read.levels == ("pod", "rack", "node", "socket", "switch")
    assert [node.path for node in read.nodes] == [("", "r1"), ("p1", "")]
    assert [node.split for node in read.nodes] == [(("switch", 4),), (("socket", 2),)]


def test_levels_may_have_any_names() -> None:
    read = cluster(
        "levels: [hall, row, node, quad, pair]\n"
        "nodes: [{gpus: 8, hall: h, row: {nodes: 1}, split: {pair: 4, quad: 2}}]\nbandwidth: {quad: 100}\n"
    )
    assert read.levels == ("hall", "row", "node", "quad", "pair")
    assert read.nodes[0].path == ("h", "row0")
    assert read.nodes[0].split == (("quad", 2), ("pair", 4))


def test_a_new_rack_begins_every_so_many_nodes_and_numbers_go_on() -> None:
    read = cluster(
        "nodes: [{count: 4, rack: {nodes: 2, name: 'r{}'}, pod: {nodes: 4}}, {count: 3, rack: {nodes: 2, name: 'r{}'}}]"
    )
    assert [node.path for node in read.nodes] == [
        ("pod0", "r0"),
        ("pod0", "r0"),
        ("pod0", "r1"),
        ("pod0", "r1"),
        ("", "r2"),
        ("", "r2"),
        ("", "r3"),
    ]


def test_declared_parents_complete_the_path_of_a_node() -> None:
    read = cluster(
        "domains:\n- {name: east, level: region}\n- {name: p1, level: pod, parent: east}\n"
        "- {name: r1, level: rack, parent: p1}\n- {name: r2, level: rack, parent: east}\n"
        "nodes: [{rack: r1}, {rack: r2}]"
    )
    assert [node.path for node in read.nodes] == [("east", "p1", "r1"), ("east", "", "r2")]


def test_an_instance_type_fills_in_what_the_group_leaves_out() -> None:
    known = {instance.name: instance for instance in instances()}["p4d.24xlarge"]
    assert known.spot_usd_h is not None
    node, spot = cluster("nodes: [{instance: p4d.24xlarge, cpus: 4}, {instance: p4d.24xlarge, spot: true}]").nodes
    assert (node.gpus, node.gpu_type, node.gpu_memory_gb) == (8, "A100-40", 40.0)
    assert (node.cpus_milli, node.memory_mb) == (4000, known.memory_gb * 1024)
    assert (node.price_usd_h, spot.price_usd_h) == (known.on_demand_usd_h.value, known.spot_usd_h.value)
    assert spot.spot


def test_labels_taints_and_storage_are_read() -> None:
    node = cluster(
        "nodes: [{labels: {b: 1, a: x}, storage: {nvme: 30000},\n"
        "  taints: [spot, 'team=llm:NoExecute', {key: k, value: v, effect: PreferNoSchedule}]}]\n"
    ).nodes[0]
    assert node.labels == (("a", "x"), ("b", "1"))
    assert node.storage_gb == (("nvme", 30_000),)
    assert node.taints == (Taint("spot"), Taint("team", "llm", "NoExecute"), Taint("k", "v", "PreferNoSchedule"))


def test_links_tiers_overcommit_and_policy_are_read() -> None:
    read = cluster(
        "name: c\nnodes: [{rack: r, storage: {nvme: 1}}]\npolicy: 'fifo:skip=true'\novercommit: {cpus: 1.5}\n"
        "bandwidth: {cluster: 12.5, rack: {gb_s: 50, latency_us: 5}}\n"
        "storage: {nvme: {read_gb_s: 7}, lustre: {scope: cluster, capacity_gb: 100}}\n"
    )
    assert read.links == {"cluster": Link(12.5), "rack": Link(50.0, 5.0)}
    assert read.storage == (
        StorageTier("nvme", "node", read_gb_s=7.0),
        StorageTier("lustre", "cluster", capacity_gb=100),
    )
    assert (read.overcommit, read.policy, read.name) == (Overcommit(1.5, 1.0), "fifo:skip=true", "c")


def test_a_site_has_gpu_types_of_its_own() -> None:
    read = cluster("gpu_types: {Chip9: {memory_gb: 48}}\nnodes: [{gpus: 4, gpu_type: Chip9}]")
    assert (read.nodes[0].gpu_type, read.nodes[0].gpu_memory_gb) == ("Chip9", 48.0)


def test_a_gpu_type_of_no_memory_has_none() -> None:
    read = cluster("gpu_types: {Chip9: {memory_gb: 0}}\nnodes: [{gpus: 4, gpu_type: Chip9}]")
    assert [node.gpu_memory_gb for node in read.nodes] == [0]


def test_gpus_need_no_type() -> None:
    assert cluster("nodes: [{gpus: 4}]").nodes[0].gpu_type == ""


def test_twelve_thousand_nodes_are_a_few_lines() -> None:
    read = cluster(
        "nodes:\n"
        "- {count: 5000, gpus: 8, gpu_type: H100, rack: {nodes: 16}, pod: {nodes: 256}}\n"
        "- {count: 5000, gpus: 8, gpu_type: A100-80, rack: {nodes: 16}, pod: {nodes: 256}}\n"
        "- {count: 2500, gpus: 8, gpu_type: L40S, rack: {nodes: 16}, pod: {nodes: 256}}\n"
    )
    assert (len(read.nodes), read.gpus) == (12_500, 100_000)
    assert len({node.path for node in read.nodes}) == 313 + 313 + 157


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: x", "1: the key 'nodes' is missing"),
        ("nodes: []", "1: key 'nodes': expected a list of 1 to 200000 items, got 0"),
        ("version: 3\nnodes: [{}]", "1: key 'version': expected 1, got 3"),
        ("nodes: [{count: 1000000}]", "1: key 'nodes[0].count': expected a whole number from 1 to 200000, got 1000000"),
        ("nodes: [{count: -1}]", "key 'nodes[0].count': expected a whole number from 1 to 200000, got -1"),
        ("nodes:\n- count: 150000\n- count: 150000", "key 'nodes': expected at most 200000 nodes in all, got 300000"),
        ("nodes: [{count: 200000, gpus: 1000}]", "key 'nodes': expected at most 2000000 GPUs in all, got 200000000"),
        ("nodes: [{gpus: 2000}]", "key 'nodes[0].gpus': expected a whole number from 0 to 1024, got 2000"),
        ("nodes: [{gpus: .nan}]", "key 'nodes[0].gpus': expected a whole number from 0 to 1024, got .nan"),
        ("nodes: [{memory_gb: .nan}]", "key 'nodes[0].memory_gb': expected a number from 0 to 1000000, got .nan"),
        (
            "nodes:\n- gpus: 8\n  gpu_type: H10\n",
            "3: key 'nodes[0].gpu_type': unknown GPU type 'H10', did you mean H100",
        ),
        ("nodes: [{gpus: 1, gpu_type: zzzz}]", "unknown GPU type 'zzzz', `phalanx hardware` lists those it knows"),
        ("nodes: [{gpu_type: H100}]", "key 'nodes[0].gpu_type': the group has no GPUs"),
        ("nodes: [{instance: p5.48xlarg}]", "unknown instance type 'p5.48xlarg', did you mean 'p5.48xlarge'?"),
        ("nodes:\n- name: a\n- name: a", "3: key 'nodes[1].name': the node name 'a' is taken by the group on line 2"),
        ("nodes: [{name: n1}, {count: 2}]", "key 'nodes[1]': the node name 'n1' is taken by the group on line 1"),
        ("nodes: [{name: a b}]", "key 'nodes[0].name': expected a name of letters"),
        (
            "nodes:\n- {rack: r1, pod: p1}\n- {rack: r1, pod: p2}",
            "3: key 'nodes[1].rack': the rack 'r1' cannot lie in pod 'p2': the group on line 2 has it in pod 'p1'",
        ),
        (
            "nodes:\n- {rack: r1, pod: p1}\n- {rack: r1}",
            "3: key 'nodes[1].rack': the rack 'r1' cannot lie in no pod: the group on line 2 has it in pod 'p1'",
        ),
        ("nodes: [{count: 9, rack: {nodes: 4}, pod: {nodes: 6}}]", "the rack 'rack1' cannot lie in pod 'pod1'"),
        ("nodes: [{rack: rack0}, {rack: {nodes: 4}}]", "the rack 'rack0' is not new: an earlier group names it"),
        ("nodes: [{rack: {nodes: 4, name: r}}]", "'nodes[0].rack.name': expected a name with {} where its number goes"),
        ("nodes: [{rack: {nodes: 0}}]", "key 'nodes[0].rack.nodes': expected a whole number from 1 to 200000, got 0"),
        (
            "domains: [{name: a, level: pod, parent: b}, {name: b, level: pod, parent: a}]\nnodes: [{pod: a}]",
            "key 'domains[0]': a domain cannot lie in itself: a in b in a",
        ),
        (
            "domains: [{name: a, level: pod, parent: a}]\nnodes: [{}]",
            "key 'domains[0]': a domain cannot lie in itself: a in a",
        ),
        (
            "domains: [{name: east, level: pod}, {name: r, level: rack, parent: eats}]\nnodes: [{}]",
            "key 'domains[1]': unknown parent 'eats' of the domain 'r', did you mean 'east'?",
        ),
        (
            "domains: [{name: p, level: pod, parent: r}, {name: r, level: rack}]\nnodes: [{}]",
            "the pod 'p' cannot lie in the rack 'r': from the outside the levels are region, pod, rack",
        ),
        (
            "domains: [{name: a, level: pod},\n {name: a, level: rack}]\nnodes: [{}]",
            "2: key 'domains[1]': the domain 'a' is given twice, first on line 1",
        ),
        ("domains: [{name: r1, level: rack}]\nnodes: [{rack: r2}]", "unknown rack 'r2', expected one of r1"),
        (
            "domains: [{name: pod-east, level: pod}]\nnodes: [{pod: pod-eats}]",
            "unknown pod 'pod-eats', did you mean 'pod-east'?",
        ),
        (
            "domains: [{name: p, level: pod}, {name: r, level: rack, parent: p}]\nnodes: [{rack: r, pod: q}]",
            "key 'nodes[0].rack': the rack 'r' lies in the pod 'p' (line 1), not in 'q'",
        ),
        ("domains: [{name: a, level: node}]\nnodes: [{}]", "'domains[0].level': expected one of region, pod, rack"),
        ("levels: [rack]\nnodes: [{}]", "key 'levels': expected 'node' among the levels, got rack"),
        ("levels: [node, node]\nnodes: [{}]", "key 'levels[1]': expected a name that is not taken"),
        ("levels: [gpus, node]\nnodes: [{}]", "key 'levels[0]': expected a name that is not taken"),
        ("levels: [cluster, node]\nnodes: [{}]", "key 'levels[0]': expected a name that is not taken"),
        ("levels: [row, node]\nnodes: [{rack: r}]", "key 'nodes[0].rack': unknown key"),
        ("levels: [rack, node]\nnodes: [{sockets: 2}]", "key 'nodes[0].sockets': expected 'socket' among the levels"),
        ("nodes: [{gpus: 8, sockets: 3}]", "key 'nodes[0].sockets': 8 GPUs cannot be split into 3 equal parts"),
        (
            "nodes: [{gpus: 8, sockets: 4, switches: 2}]",
            "2 parts cannot be split evenly over the 4 of the level outside",
        ),
        (
            "nodes: [{gpus: 8, sockets: 2, split: {socket: 2}}]",
            "expected 'socket' among the levels and not in 'split' too",
        ),
        ("nodes: [{}]\nbandwidth: {rack: 50}", "2: key 'bandwidth.rack': no such level in this cluster"),
        ("nodes: [{}]\nbandwidth: {node: 0}", "key 'bandwidth.node': expected a number from 0.001 to 1000000, got 0"),
        ("nodes: [{}]\nbandwidth: {node: {latency_us: 1}}", "key 'bandwidth.node': the key 'gb_s' is missing"),
        ("nodes: [{storage: {nvm: 1}}]\nstorage: {nvme: {}}", "unknown storage tier, did you mean 'nvme'?"),
        (
            "nodes: [{}]\nstorage: {nvme: {scope: rack}}",
            "'storage.nvme.scope': expected one of cluster, node, got rack",
        ),
        ("nodes: [{}]\novercommit: {cpus: 0.5}", "key 'overcommit.cpus': expected a number from 1 to 100, got 0.5"),
        ("gpu_types: {H100: {memory_gb: 1}}\nnodes: [{}]", "'gpu_types.H100': the catalogue has this type as H100"),
        ("nodes: [{taints: ['a:Never']}]", "'nodes[0].taints[0]': expected key=value:effect"),
        ("nodes: [{}]\nqueues: {}", "2: key 'queues': expected a list, got a mapping"),
        ("nodes: [{gpus: 8}]\nqueues: [{name: a, deserved: 9}]", "queue a deserves 9 GPUs, but the cluster has 8"),
        ("nodes: [{}]\nqueues: [{name: a}, {name: a}]", "the queue 'a' is given twice, first on line 2"),
        ("nodes: [{}]\nqueues: [{name: a/b}]", "queue a/b lies in a, which there is not"),
        ("nodes: [{}]\nqueues: [{name: a b}]", "expected a name, or a path of names such as research/llm"),
        ("nodes: [{}]\nqueues: [{name: a, weight: 0}]", "'queues[0].weight': expected a whole number from 1"),
        (
            "nodes: [{}]\nvirtual_clusters: {a: {cells: [{level: rack}]}}",
            "'virtual_clusters.a.cells[0].level': expected",
        ),
        ("nodes: [{}]\nvirtual_clusters: {a: {cells: [{level: gpu}]}}", "no cell is a gpu"),
        ("nodes: [{gpus: 2}]\nvirtual_clusters: {a: {pinned: [x]}}", "there is no 'x'"),
        ("nodes: [{gpus: 2}]\nvirtual_clusters: {a b: {}}", "expected a name of letters"),
        (
            (
                "nodes: [{gpus: 2, gpu_type: K80}, {gpus: 4, gpu_type: K80}]\n"
                "virtual_clusters: {a: {cells: [{level: node}]}}"
            ),
            (
                "several kinds of cells are a node: K80-node of 2 GPUs in K80-node, "
                "K80-node-2 of 4 GPUs in K80-node-2; say which by 'gpu_type', 'gpus' or 'within'"
            ),
        ),
        ("physicalCluster: {}\nvirtualClusters: {}", "the key 'physicalCells' is missing"),
    ],
)
def test_a_wrong_cluster_file_gives_one_clear_error(text: str, expected: str) -> None:
    message = error_of(text)
    assert message.startswith("cluster.yaml:")
    assert expected in message


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("cluster-*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_cluster(path: Path) -> None:
    assert read_cluster(path.read_text(encoding="utf-8"), path.name).gpus


def test_the_page_lists_exactly_the_keys_that_are_read() -> None:
    keys: dict[str, list[str]] = {}
    section = ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").replace("`", "")
        elif row := re.match(r"\| `(\w+)` \|", line):
            keys.setdefault(section, []).append(row[1])
    assert keys == {section: list(names) for section, names in KEYS.items()}


def test_the_example_of_the_page_is_a_cluster() -> None:
    first, *others = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert cluster(first).gpus == 512 * 8 + 4 * 8
    assert all(cluster(example).gpus for example in others if "nodes:" in example)


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("queues: [{name: a}]", True),
        ("version: 1\npolicy: sjf\nmaintenance: []\ndefragment: never", True),
        ("version: 1", False),
        ("queues: [{name: a}]\nnodes: [{gpus: 8}]", False),
        ("queues: [{name: a}]\nquues: []", False),
        ("[queues]", False),
    ],
)
def test_a_file_without_hardware_is_settings(text: str, is_it: bool) -> None:
    assert is_settings(text, "f") is is_it


def test_a_time_from_now_on_counts_from_the_moment_that_the_reader_is_given() -> None:
    window = "maintenance: [{name: m, nodes: [n], start: +2h, for: 1h}]"
    read = read_cluster(f"nodes: [{{name: n, gpus: 8}}]\n{window}", "f", now_ms=1_000)
    assert [(each.start_ms, each.end_ms) for each in read.maintenance] == [(7_201_000, 10_801_000)]
    assert read_settings(window, "f", read, 1_000).maintenance == read.maintenance


def test_settings_change_what_they_say_and_nothing_else() -> None:
    present = cluster("nodes: [{name: n, count: 2, gpus: 8}]\nqueues: [{name: a}]\npolicy: sjf\ndefragment: 10m")
    settings = read_settings("queues: [{name: b, limit: {gpus: 4}}]\ndefragment: never", "f", present, 0)
    changed = settings.on(present)
    assert ([queue.path for queue in changed.queues], changed.defragment_ms) == (["b"], 0)
    assert replace(changed, queues=present.queues, defragment_ms=present.defragment_ms) == present
    with pytest.raises(DocumentError, match=r"f:1: key 'queues\[0\]'.*16"):
        read_settings("queues: [{name: b, guaranteed: {gpus: 17}}]", "f", present, 0)
