"""`phalanx kube extender` with a real kube-scheduler as its client."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from kube_cluster import KubeCluster, create, wait_for
from kube_objects import node, pod
from kube_site import ENV, POD_PATH, gang, nodes_of, pods
from phalanx.kube.api.client import Client
from phalanx.kube.extender.assigner import indices_of

pytestmark = pytest.mark.needs("kubernetes")

DEFAULT = "default-scheduler"


@contextmanager
def extending(cluster: KubeCluster) -> Iterator[str]:
    """The verb, meanwhile, and where it listens."""
    command = [sys.executable, "-m", "phalanx", "kube", "extender", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--kubeconfig", str(cluster.kubeconfig)], stderr=subprocess.PIPE, env=ENV)
    try:
        assert process.stderr is not None
        found = re.search(r"extending .* at (\S+)", process.stderr.readline().decode())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def asking(cluster: KubeCluster, address: str) -> Iterator[None]:
    """A kube-scheduler that asks it."""
    config = cluster.root / "extended.yaml"
    extender = {
        "urlPrefix": f"http://{address}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": 1,
        "nodeCacheCapable": True,
    }
    written = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "extenders": [extender],
    }
    config.write_text(yaml.safe_dump(written))
    gates = "--feature-gates=GenericWorkload=false"
    cluster.spawn("scheduler", cluster.folder / "kube-scheduler", "--config", config, "--secure-port", "0", gates)
    try:
        yield
    finally:
        cluster.end("scheduler")


@pytest.mark.needs("kube_scheduler")
def test_gangs_are_bound_whole_by_kube_scheduler_where_phalanx_places_them(api: Client, cluster: KubeCluster) -> None:
    """Without it, it would bind a part of each of the two gangs, whose pods come in turns."""
    create(api, node("n0"), node("n1"))
    members = [*gang("g", 2, 8, schedulerName=DEFAULT), *gang("h", 2, 8, schedulerName=DEFAULT)]
    create(api, *sorted(members, key=lambda each: each["metadata"]["name"].rpartition("-")[2]))

    def bound() -> dict[str, str]:
        return {name: where for name, where in nodes_of(api).items() if name != "plain"}

    with extending(cluster) as address, asking(cluster, address):
        create(api, pod("plain", 0, schedulerName=DEFAULT))
        wait_for("one gang is bound", lambda: len(bound()) == 2)
        first = dict(bound())
        assert len({name[0] for name in first}) == 1
        assert sorted(first.values()) == ["n0", "n1"]
        wait_for("pods without GPUs are its own", lambda: "plain" in nodes_of(api))
        for name in first:
            assert indices_of(pods(api)[name]) == list(range(8))
            api.patch(f"{POD_PATH}/{name}/status", {"status": {"phase": "Succeeded"}})
        wait_for("the other is bound after it", lambda: len(bound()) == 4, 90)


def asked(address: str, path: str, body: bytes) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", body, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_what_is_no_question_is_refused_and_harms_nothing(api: Client, cluster: KubeCluster) -> None:
    create(api, node("n0"), pod("a", 8, schedulerName=DEFAULT))
    uid = pods(api)["a"].metadata.uid
    with extending(cluster) as address:
        assert asked(address, "/bound", b"{}")[0] == 404
        assert asked(address, "/filter", b"[" * 100_000)[0] == 400
        assert asked(address, "/filter", b'{"Pod": 7}')[0] == 400
        assert b"nodeCacheCapable" in asked(address, "/filter", b'{"Pod": {}, "Nodes": {}}')[1]
        assert asked(address, "/preempt", b"{}") == (200, b'{"NodeNameToMetaVictims":{}}')
        refused = asked(address, "/bind", b'{"PodName":"a","PodNamespace":"default","PodUID":"x","Node":"n0"}')
        assert refused == (200, b'{"Error":"phalanx has not given the pod this node"}')
        assert nodes_of(api) == {}
        body = f'{{"PodName":"a","PodNamespace":"default","PodUID":"{uid}","Node":"n0"}}'.encode()
        wait_for("it is given its node", lambda: indices_of(pods(api)["a"]) == list(range(8)))
        assert asked(address, "/bind", body) == (200, b'{"Error":""}')
        assert nodes_of(api) == {"a": "n0"}
