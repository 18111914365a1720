"""What the launcher is asked for, in torchrun's words."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.errors import PhalanxError
from phalanx.train.launch.plan import Seat

PORT_MOST = 65535


@dataclass(frozen=True, slots=True)
class Options:
    """One agent's orders. Times in seconds."""

    command: tuple[str, ...]
    least: int = 1
    most: int = 1
    slots: int = 1
    run_id: str = "none"
    endpoint: tuple[str, int] | None = None
    local_addr: str = ""
    max_restarts: int = 3
    standby: int = 0
    preload: tuple[str, ...] = ("torch",)
    grace_s: float = 30.0
    hang_timeout_s: float = 600.0
    lease_s: float = 5.0
    last_call_s: float = 2.0
    join_timeout_s: float = 600.0
    retry_program_errors: bool = False
    seat: Seat | None = None
    """Where the scheduler plans the world: it says how many agents there are, before `least` and `most`."""

    def __post_init__(self) -> None:
        if not self.command:
            raise PhalanxError("there is no command to launch: phalanx launch [options] -- python train.py")
        if not 1 <= self.least <= self.most:
            raise PhalanxError(f"--nnodes {self.least}:{self.most}: expected MIN:MAX with 1 ≤ MIN ≤ MAX")
        if self.slots < 1:
            raise PhalanxError(f"--nproc-per-node {self.slots}: expected at least 1")
        if self.most > 1 and self.endpoint is None:
            raise PhalanxError("several nodes find one another at --rdzv-endpoint HOST:PORT, and none is given")
        if self.max_restarts < 0:
            raise PhalanxError(f"--max-restarts {self.max_restarts}: expected at least 0")


def nodes_of(text: str) -> tuple[int, int]:
    """`4`, or `2:6`."""
    least, _, most = text.partition(":")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise PhalanxError(f"--nnodes {text}: expected a number, or MIN:MAX") from None


def endpoint_of(text: str) -> tuple[str, int]:
    """`host:29400`; without a port, torchrun's."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 29400
    if not host or not port.isdecimal() or not 1 <= int(port) <= PORT_MOST:
        raise PhalanxError(f"--rdzv-endpoint {text}: expected HOST:PORT, with a port from 1 to {PORT_MOST}")
    return host, int(port)


def settings_of(text: str) -> dict[str, float]:
    """`last_call_timeout=5,join_timeout=60`: those of torchrun's settings that mean something here."""
    known = {"last_call_timeout": "last_call_s", "join_timeout": "join_timeout_s", "lease": "lease_s"}
    found = {}
    for each in filter(None, text.split(",")):
        key, _, value = each.partition("=")
        if key.strip() not in known:
            raise PhalanxError(f"--rdzv-conf {each}: expected one of {', '.join(known)}")
        try:
            found[known[key.strip()]] = float(value)
        except ValueError:
            raise PhalanxError(f"--rdzv-conf {each}: expected a number of seconds") from None
    return found
