"""One Kubernetes cluster for all tests here, emptied after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kube_cluster
from kube_cluster import KubeCluster
from phalanx.kube.api.client import Client


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A cluster for the whole run."""
    with kube_cluster.running(tmp_path_factory.mktemp("kube")) as running:
        yield running


@pytest.fixture
def api(cluster: KubeCluster) -> Iterator[Client]:
    """A client of an admin, and a cluster with nothing in it, which is emptied after."""
    with cluster.client() as client:
        yield client
        kube_cluster.clear(client)
