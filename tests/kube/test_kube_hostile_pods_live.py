"""Pods that users of a namespace can write to harm others, on a real API server."""

from __future__ import annotations

from functools import partial

import pytest

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import events, nodes_of, scheduling
from phalanx.kube.api.client import Client

pytestmark = pytest.mark.needs("kubernetes")


def is_told(api: Client, name: str, line: str) -> bool:
    return any(line in each for each in events(api, name))


def test_pods_that_cannot_be_read_are_told_and_hold_nothing_up(api: Client, cluster: KubeCluster) -> None:
    digits, address, wordy, most = pod("digits"), pod("address"), pod("wordy"), pod("most")
    digits["metadata"]["annotations"] = {"phalanx.dev/gang": "9" * 5000}
    address["metadata"]["annotations"] = {"phalanx.dev/save": "x" * 200_000}
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": f"b{i}"}}} for i in range(5000)]
    wordy["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    most["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(2**63 - 1)
    create(api, node("n0"))
    with scheduling(cluster):
        create(api, digits, address, wordy, most, pod("good"))
        wait_for("the pod beside them is bound", lambda: list(nodes_of(api)) == ["good"])
        for name, line in (
            ("digits", "expected true on pods of a Job, or a number of pods"),
            ("address", "expected a port and a path"),
            ("wordy", "bytes long; expected up to 32,768"),
            ("most", "no part of this cluster could ever hold it"),
        ):
            wait_for(f"{name} is told", partial(is_told, api, name, line))
