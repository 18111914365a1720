"""How the registry finds the local backend."""

from __future__ import annotations

import os

from phalanx.backends.capability import Offer
from phalanx.backends.local.backend import LocalBackend
from phalanx.backends.local.host.cgroup import find_grounds
from phalanx.backends.local.host.machine import device_names, gpus_here, real_nodes
from phalanx.backends.local.host.offer import local_offer
from phalanx.backends.local.orders import Yard
from phalanx.backends.local.shepherd.tasks import sandbox
from phalanx.backends.registry import Setting


def open_backend(setting: Setting) -> LocalBackend:
    """The local backend in a server's folder."""
    return LocalBackend(_yard(setting), setting.jobs)


def offer(setting: Setting) -> Offer:
    """What this machine can do."""
    return local_offer(_yard(setting))


def hidden(setting: Setting) -> tuple[str, ...]:
    """What tasks must not see and permissions do not keep from them; nothing where they run as other users, or where
    it cannot be hidden.
    """
    if os.getuid() == 0 or sandbox.obstacle():
        return ()
    private = (os.path.realpath(path) for path in setting.private if os.path.exists(path))
    return (os.path.realpath(setting.data), *private)


def _yard(setting: Setting) -> Yard:
    return Yard(
        setting.data,
        setting.environment,
        setting.identity,
        device_names(setting.cluster),
        find_grounds(),
        setting.turn_ms,
        hidden(setting),
        setting.secrets,
        setting.history,
        gpus_here(),
        real_nodes(setting.cluster),
    )
