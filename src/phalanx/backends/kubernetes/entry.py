"""How the registry finds the Kubernetes backend."""

from __future__ import annotations

import os

from phalanx.backends.capability import Offer
from phalanx.backends.kubernetes.backend import KubernetesBackend
from phalanx.backends.kubernetes.nodes import ask_cluster
from phalanx.backends.kubernetes.offer import kubernetes_offer
from phalanx.backends.kubernetes.settings import Settings, read_settings
from phalanx.backends.kubernetes.site import Site, server_name
from phalanx.backends.local.orders import Yard
from phalanx.backends.registry import Setting
from phalanx.cluster.cluster import Cluster
from phalanx.kube.api.access import find_access
from phalanx.kube.api.client import Client


def open_backend(setting: Setting) -> KubernetesBackend:
    """The Kubernetes backend in a server's folder."""
    yard = Yard(
        setting.data,
        setting.environment,
        setting.identity,
        secrets=setting.secrets,
        history=setting.history,
    )
    settings = read_settings()
    site = Site(_client(settings), settings, server_name(yard.backend))
    backend = KubernetesBackend(site, yard, setting.jobs, setting.cluster)
    backend.start()
    return backend


def offer(setting: Setting) -> Offer:
    """What can be done on Kubernetes."""
    return kubernetes_offer()


def cluster() -> Cluster:
    """The nodes that Kubernetes has."""
    with _client(read_settings()) as client:
        return ask_cluster(client)


def _client(settings: Settings) -> Client:
    return Client(find_access(None, settings.context, os.environ))
