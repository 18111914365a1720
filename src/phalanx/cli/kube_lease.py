"""`--lease` of `phalanx kube` and of its extender."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.kube.lease import LeaseSettings


def lease_settings(lease: str, duration_s: int) -> LeaseSettings:
    """The lease of that name, with an identity of this process."""
    from phalanx.kube.lease import LeaseSettings

    namespace, _, name = lease.partition("/")
    if not namespace or not name or "/" in name:
        raise click.BadParameter(f"expected NAMESPACE/NAME, got {lease!r}", param_hint="--lease")
    return LeaseSettings(namespace, name, f"{socket.gethostname()}_{uuid.uuid4()}", duration_s)
