"""Addresses and ports of this machine, as the other agents reach it."""

from __future__ import annotations

import socket

from phalanx.errors import PhalanxError
from phalanx.train.launch.network import Address


class LaunchError(PhalanxError):
    """The agent could not take part."""


def local_address(endpoint: Address | None) -> str:
    """The address of this machine in the network that leads to the endpoint."""
    if endpoint is None:
        return "127.0.0.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            # Nothing is sent; the kernel only picks the way.
            probe.connect((endpoint[0], 9))
            host: str = probe.getsockname()[0]
            return host
    except OSError as error:
        raise LaunchError(f"--rdzv-endpoint {endpoint[0]}:{endpoint[1]}: {error.strerror or error}") from None


def is_local(host: str) -> bool:
    """Whether this machine has that address."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            return True
    except OSError:
        return False


def free_port(host: str) -> int:
    """A port that nothing listens on now."""
    with socket.create_server((host, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
