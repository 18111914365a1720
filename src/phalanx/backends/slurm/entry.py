"""How the registry finds the Slurm backend."""

from __future__ import annotations

from phalanx.backends.capability import Offer
from phalanx.backends.local.entry import hidden
from phalanx.backends.registry import Setting
from phalanx.backends.slurm.backend import SlurmBackend
from phalanx.backends.slurm.nodes import ask_nodes, cluster_of
from phalanx.backends.slurm.offer import slurm_offer
from phalanx.backends.slurm.orders import NodeYard
from phalanx.cluster.cluster import Cluster


def open_backend(setting: Setting) -> SlurmBackend:
    """The Slurm backend in a server's folder."""
    yard = NodeYard(
        setting.data,
        setting.environment,
        setting.identity,
        hidden=hidden(setting),
        secrets=setting.secrets,
        history=setting.history,
    )
    return SlurmBackend(yard, setting.jobs, setting.present)


def offer(setting: Setting) -> Offer:
    """What can be done on the Slurm of this machine."""
    return slurm_offer()


def cluster() -> Cluster:
    """The nodes that Slurm has."""
    return cluster_of(ask_nodes())
