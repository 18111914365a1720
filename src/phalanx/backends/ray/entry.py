"""How the registry finds the Ray backend."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from phalanx.backends.capability import Offer
from phalanx.backends.local.orders import Yard
from phalanx.backends.ray.backend import RayBackend
from phalanx.backends.ray.nodes import cluster_of_ray
from phalanx.backends.ray.offer import ray_offer, why_not
from phalanx.backends.ray.yard import RayYard
from phalanx.backends.registry import Setting
from phalanx.cluster.cluster import Cluster
from phalanx.errors import PhalanxError

ADDRESS = "RAY_ADDRESS"
"""Ray's own variable: the address of the head, as HOST:PORT. Without it the Ray of this machine is meant."""


class NoRay(PhalanxError):  # noqa: N818
    """There is no Ray that could be used."""


def open_backend(setting: Setting) -> RayBackend:
    """The Ray backend in a server's folder."""
    if why := why_not():
        raise NoRay(f"backend 'ray': {why}")
    return RayBackend(_yard(setting), setting.jobs)


def offer(setting: Setting) -> Offer:
    """What Ray can do."""
    return ray_offer()


def cluster() -> Cluster:
    """The nodes that Ray has."""
    return cluster_of_ray(address())


def address() -> str:
    """Where Ray is."""
    return os.environ.get(ADDRESS, "auto")


def _yard(setting: Setting) -> Yard:
    driver = setting.data / "backend" / "ray"
    return RayYard(
        data=setting.data,
        environment=setting.environment,
        secrets=setting.secrets,
        history=setting.history,
        address=address(),
        driver=driver,
        site=_site(driver),
        cluster=setting.present,
    )


def _site(folder: Path) -> str:
    """What tells this server's gangs from those of others on the same Ray: drawn once, and kept."""
    path = folder / "site"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(secrets.token_hex(4))
    return path.read_text().strip()
