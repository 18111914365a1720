"""The tiers a state is kept in, from the fastest and most fragile to the slowest and most durable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.train.checkpoint.store import Retention

AUTO = None
"""As an interval: worked out from failure rates and measured costs. As a size: chosen from what copying needs."""


@dataclass(frozen=True, slots=True)
class Device:
    """A copy in the device's own memory. Survives an error inside the trainer, not the trainer's end."""

    name: ClassVar[str] = "device"
    every: int | None = AUTO


@dataclass(frozen=True, slots=True)
class Host:
    """Shared host memory, which outlives the trainer. `slots` snapshots have room, at least two.

    `scratch_mb` of device memory take what cannot be copied to the host before the optimiser changes it; AUTO takes
    what is needed, at most half of the state.
    """

    name: ClassVar[str] = "host"
    every: int | None = AUTO
    slots: int = 2
    scratch_mb: int | None = AUTO


@dataclass(frozen=True, slots=True)
class Peer:
    """Host memory of other machines: `copies` of each snapshot, the own one included.

    `domains` names each machine's failure domains, in order of the lowest rank on it.
    """

    name: ClassVar[str] = "peer"
    copies: int = 2
    every: int | None = AUTO
    domains: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Local:
    """A directory on a disk of this machine; each rank writes its own part."""

    name: ClassVar[str] = "local"
    path: str | PathLike[str]
    every: int | None = AUTO
    keep: Retention | None = None


@dataclass(frozen=True, slots=True)
class Shared:
    """A directory that all ranks see, or any URL that fsspec knows; can be loaded on any number of ranks."""

    name: ClassVar[str] = "shared"
    url: str | PathLike[str]
    every: int | None = AUTO
    keep: Retention | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 600.0
    """How long a rank that has not written its part is waited for."""

    def __post_init__(self) -> None:
        address = os.fspath(self.url)
        # fsspec chains filesystems with "::"; the last one is where the bytes end up.
        if address.split("::")[-1].partition("://")[0] == "memory":
            raise PhalanxError(
                f"Shared({address!r}): fsspec's memory filesystem lies in one process and ends with it, so no step "
                f"there is durable. Expected a directory or the URL of a store that outlasts the job: name one, or "
                f"keep the state in memory with Host() alone"
            )


Tier = Device | Host | Peer | Local | Shared

ORDER = ("device", "host", "peer", "local", "shared")
"""In which order a lost state is looked for."""
