"""The backends by name: those that come with phalanx, and those that packages bring along by entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

from phalanx.backends.capability import Offer
from phalanx.backends.live import History, LiveBackend
from phalanx.cluster.cluster import Cluster
from phalanx.errors import PhalanxError
from phalanx.workload.job import Job, UnixIdentity

GROUP = "phalanx.backends"
"""An entry point of this group names a module that has `open_backend(Setting)` and `offer(Setting)`, and, where the
engine itself knows which nodes there are, `cluster()`.
"""

TURN_MS = 60_000
"""Gandiva's: long against what a switch costs, short for jobs that wait for their turn (Xiao et al., OSDI 2018)."""

BUILT_IN = {
    "kubernetes": "phalanx.backends.kubernetes.entry",
    "local": "phalanx.backends.local.entry",
    "ray": "phalanx.backends.ray.entry",
    "slurm": "phalanx.backends.slurm.entry",
}


class UnknownBackend(PhalanxError):  # noqa: N818
    """No backend has this name."""


def no_variables(job: str, attempt: int) -> Mapping[str, str]:
    """Nothing beside what every job gets."""
    return {}


def as_server(job: Job) -> UnixIdentity | None:
    """Every job runs as the Unix user that this process is."""
    return None


def no_secrets(job: Job) -> Mapping[str, str]:
    """A job that names a secret is refused: there are none."""
    for name in job.execution.secrets:
        raise PhalanxError(f"secret '{name}' of job {job.id}: there are no secrets here")
    return {}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a server gives a backend to work with.

    `data` is the server's folder, `jobs` gives the job of an id. `environment` gives further variables of an attempt,
    such as where it reports its progress; `identity` is the Unix user that a job's tasks run as. Jobs that take a
    device in turns run for `turn_ms` each. `private` are files and folders of the server's, beside `data`, that no
    task may see. `secrets` gives the secrets of a job that starts now as variables; for one that may not have what it
    names it raises a PhalanxError, which is why the start fails. `history` is what the store knows of attempts.
    `cluster` is that of the start; `present` gives the one of now.
    """

    data: Path
    jobs: Callable[[str], Job]
    cluster: Cluster
    environment: Callable[[str, int], Mapping[str, str]] = no_variables
    identity: Callable[[Job], UnixIdentity | None] = as_server
    turn_ms: int = TURN_MS
    private: tuple[str, ...] = ()
    secrets: Callable[[Job], Mapping[str, str]] = no_secrets
    history: History = field(default_factory=History)
    cluster_now: Callable[[], Cluster] | None = None

    def present(self) -> Cluster:
        """The cluster as it is now: nodes come and go while a server runs."""
        return self.cluster if self.cluster_now is None else self.cluster_now()


def backend_names() -> tuple[str, ...]:
    """All backends there are."""
    return tuple(sorted({*BUILT_IN, *entry_points(group=GROUP).names}))


def open_backend(name: str, setting: Setting) -> LiveBackend:
    """A backend at work."""
    opened = _module(name).open_backend  # type: ignore[attr-defined]
    return cast("Callable[[Setting], LiveBackend]", opened)(setting)


def offer_of(name: str, setting: Setting) -> Offer:
    """What a backend could do here, without starting it."""
    offered = _module(name).offer  # type: ignore[attr-defined]
    return cast("Callable[[Setting], Offer]", offered)(setting)


def cluster_of(name: str) -> Cluster | None:
    """The cluster that a backend's engine says there is; None where it has to be told."""
    described = getattr(_module(name), "cluster", None)
    return cast("Callable[[], Cluster]", described)() if described is not None else None


def _module(name: str) -> object:
    if name in BUILT_IN:
        return import_module(BUILT_IN[name])
    for entry in entry_points(group=GROUP, name=name):
        return entry.load()
    raise UnknownBackend(f"backend '{name}': there is none of that name; expected one of {', '.join(backend_names())}")
