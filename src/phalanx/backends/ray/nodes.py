"""The nodes of Ray as a cluster of phalanx: `python -m phalanx.backends.ray.nodes ADDRESS` writes it as JSON.

A process of its own asks: Ray leaves threads behind, and its answer may not come.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.cluster.cluster import DEFAULT_POLICY, Cluster, Node
from phalanx.errors import PhalanxError

ASK_S = 60.0
CLUSTER = "ray"
"""What a cluster is called whose nodes are those that Ray has: what joins Ray joins it."""

NODE_LABEL, TYPE_LABEL, MARKET_LABEL = "phalanx.dev/node", "ray.io/accelerator-type", "ray.io/market-type"
LEVELS = (("region", "ray.io/availability-region"), ("zone", "ray.io/availability-zone"))
"""Levels of the cluster that Ray's own labels tell of."""


class NoCluster(PhalanxError):  # noqa: N818
    """Ray does not say which nodes it has."""


def cluster_of_ray(address: str) -> Cluster:
    """The nodes that Ray has now."""
    program = [sys.executable, "-m", "phalanx.backends.ray.nodes", address]
    try:
        told = subprocess.run(program, capture_output=True, text=True, timeout=ASK_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoCluster(_unanswered(address, f"it did not answer within {ASK_S:.0f} s")) from None
    if told.returncode:
        lines = told.stderr.strip().splitlines()
        raise NoCluster(_unanswered(address, lines[-1] if lines else "it said nothing"))
    return cluster_from(json.loads(told.stdout.strip().splitlines()[-1]))


def cluster_from(nodes: list[dict[str, Any]]) -> Cluster:
    """A cluster of nodes as Ray tells of them, but for those without CPUs and GPUs, where no task could run."""
    able = [told for told in nodes if told["Alive"] and {"CPU", "GPU"} & told["Resources"].keys()]
    if not able:
        raise NoCluster("Ray has no node with CPUs or GPUs: start one with `ray start --address=…`")
    levels = [(name, label) for name, label in LEVELS if all(label in told["Labels"] for told in able)]
    made = [_node(told, tuple(told["Labels"][label] for _, label in levels)) for told in able]
    names = [node.name for node in made]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise NoCluster(
            f"Ray has several nodes named {twice[0]}: start each with --labels={NODE_LABEL}=NAME and another name"
        )
    ordered = tuple(sorted(made, key=lambda node: (node.path, node.name)))
    return Cluster(ordered, levels=(*(name for name, _ in levels), "node"), policy=DEFAULT_POLICY, name=CLUSTER)


def node_name(told: Mapping[str, Any]) -> str:
    """What phalanx calls a node of Ray."""
    return str(told["Labels"].get(NODE_LABEL) or told["NodeManagerHostname"])


def _node(told: Mapping[str, Any], path: tuple[str, ...]) -> Node:
    resources, labels = told["Resources"], told["Labels"]
    gpus = int(resources.get("GPU", 0))
    type_ = _type_of(resources, labels) if gpus else ""
    return Node(
        node_name(told),
        path,
        gpus=gpus,
        gpu_type=type_,
        gpu_memory_gb=_memory_of(type_),
        cpus_milli=int(resources.get("CPU", 0) * 1000),
        memory_mb=int(resources.get("memory", 0)) >> 20,
        labels=tuple(
            sorted((name, value) for name, value in labels.items() if name not in (NODE_LABEL, "ray.io/node-id"))
        ),
        spot=labels.get(MARKET_LABEL) == "spot",
    )


def _type_of(resources: Mapping[str, float], labels: Mapping[str, str]) -> str:
    """What Ray calls the GPUs of a node, as its label or its resource `accelerator_type:NAME` has it."""
    by_resource = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    return labels.get(TYPE_LABEL) or (by_resource[0] if by_resource else "")


def _memory_of(type_: str) -> float:
    try:
        return float(accelerator(type_).memory_gb.value) if type_ else 0.0
    except UnknownAccelerator:
        return 0.0


def _unanswered(address: str, why: str) -> str:
    where = "on this machine" if address == "auto" else f"at {address}"
    return f"Ray {where}: {why}; set RAY_ADDRESS to HOST:PORT of its head, and use its versions of Ray and Python"


def main(address: str) -> None:
    import ray

    ray.init(address, log_to_driver=False, configure_logging=False, logging_level="ERROR")
    print(json.dumps(ray.nodes()))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
