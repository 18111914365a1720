"""Jobs: what a person asks to be run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phalanx.workload.gang import Gang
from phalanx.workload.parallel import ParallelPlan, Traffic
from phalanx.workload.scale import Scale
from phalanx.workload.sweep import Sweep
from phalanx.workload.toleration import Toleration

DEFAULT_QUEUE = "default"
"""The queue of a job that names none."""


class Kind(StrEnum):
    """What a job is for, and so what may be done to it."""

    TRAINING = "training"
    SERVICE = "service"
    INTERACTIVE = "interactive"


class After(StrEnum):
    """When a dependency is met."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"
    START = "start"


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another job this one waits for. With `keep` it stays pending where that job ends otherwise; else a server cancels
    it then.
    """

    job: str
    on: After = After.SUCCESS
    keep: bool = False


@dataclass(frozen=True, slots=True)
class NodePreference:
    """A label whose nodes a job likes by so much more than others, or less where `weight` is below zero. It rules no
    node out; the weights of a node are added up.
    """

    label: str
    value: str
    weight: int


@dataclass(frozen=True, slots=True)
class Array:
    """Members of one submission: their indices, and how many may run at a time (0: all)."""

    indices: tuple[int, ...]
    parallel_max: int = 0


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """How the job saves its work, if it `saves` it at all. `interval_ms` 0 means the scheduler chooses."""

    interval_ms: int = 0
    cost_ms: int = 0
    saves: bool = False


class ProbeKind(StrEnum):
    """How a service is asked whether it is well."""

    HTTP = "http"
    TCP = "tcp"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks a service whether it is well: by a path on a port (http), a port (tcp), or a command's exit code."""

    kind: ProbeKind
    port: int = 0
    path: str = "/"
    command: tuple[str, ...] = ()
    interval_ms: int = 10_000
    timeout_ms: int = 5_000
    failures_max: int = 3
    after_ms: int = 0


HIDDEN = "…"
"""What stands for the value of a variable where it is shown to users that may not change the job."""


@dataclass(frozen=True, slots=True)
class UnixIdentity:
    """The Unix user that tasks run as. `user` is its name on the machine; empty for a number without a name."""

    uid: int
    gid: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What is run. The scheduler never looks at it; backends do.

    `probe` is for services; an interactive job on which nothing happens for `idle_timeout_ms` is ended. `run_as` is
    settled by the server when the job is submitted, and is nothing that a job file could say.
    """

    command: tuple[str, ...] = ()
    image: str = ""
    env: tuple[tuple[str, str], ...] = ()
    workdir: str = ""
    mounts: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    probe: Probe | None = None
    idle_timeout_ms: int | None = None
    run_as: UnixIdentity | None = None


DEFAULT_GRACE_MS = 30_000
GRACE_MAX_MS = 3_600_000
PRIORITY_MIN, PRIORITY_MAX = -1_000_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """One job. `duration_ms` is an estimate and is never trusted blindly; times of day are milliseconds since 1970."""

    id: str
    gang: Gang
    name: str = ""
    kind: Kind = Kind.TRAINING
    queue: str = DEFAULT_QUEUE
    user: str = ""
    priority: int = 0
    parallel: ParallelPlan | None = None
    traffic: Traffic | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    duration_ms: int | None = None
    max_run_ms: int | None = None
    max_wait_ms: int | None = None
    begin_ms: int | None = None
    deadline_ms: int | None = None
    grace_ms: int = DEFAULT_GRACE_MS
    after: tuple[Dependency, ...] = ()
    array: Array | None = None
    array_of: str = ""
    preemptible: bool = True
    min_available: int = 0
    checkpoint: Checkpointing = Checkpointing()
    retry_limit: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    execution: Execution = Execution()
    sweep: Sweep | None = None
    movable: bool = True
    scale: Scale | None = None
    preferences: tuple[NodePreference, ...] = ()
