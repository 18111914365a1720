"""Where gloo listens: at an address that the other hosts of the world reach.

Gloo listens where the name of the machine leads to. Many machines lead their own name to 127.0.0.1 or 127.0.1.1, and
ranks elsewhere would then wait for ranks that they cannot reach, without a word.
"""

from __future__ import annotations

import fcntl
import functools
import ipaddress
import logging
import os
import socket
import struct

from phalanx.train.launch.epoch import Epoch

VARIABLE = "GLOO_SOCKET_IFNAME"
SIOCGIFADDR = 0x8915

log = logging.getLogger("phalanx.launch")


def variables(epoch: Epoch, host: str) -> dict[str, str]:
    """What ranks are told of it: nothing where gloo finds its way, or the user has said where."""
    spans_hosts = len({member.host for member in epoch.members}) > 1
    if not spans_hosts or VARIABLE in os.environ or not name_leads_nowhere():
        return {}
    interface = interface_of(host)
    _tell(interface, host)
    return {VARIABLE: interface} if interface else {}


@functools.cache
def _tell(interface: str, host: str) -> None:
    """Once, since the machine is the same in each epoch."""
    nowhere = f"the name of this machine, {socket.gethostname()}, leads to no address that other hosts reach"
    if interface:
        log.info("%s: ranks get %s=%s", nowhere, VARIABLE, interface)
    else:
        log.warning(
            "%s, and no interface has %s: ranks over gloo may wait for one another in vain; set %s to the interface "
            "that leads to the other hosts",
            nowhere,
            host,
            VARIABLE,
        )


def name_leads_nowhere() -> bool:
    """Whether the machine's own name leads to no address at which it can listen for others."""
    try:
        found = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            # Gloo takes the first that is this machine's.
            return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    return True


def interface_of(host: str) -> str:
    """The interface with that address of IPv4."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            wanted = socket.inet_aton(socket.gethostbyname(host))
            names = [name for _, name in socket.if_nameindex()]
        except OSError:
            return ""
        return next((name for name in names if _address_of(probe, name) == wanted), "")


def _address_of(probe: socket.socket, name: str) -> bytes:
    try:
        said: bytes = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:
        # It is down, or has none.
        return b""
    return said[20:24]
