"""Events: everything that can happen to the State from outside. They are journaled, and folded in by `apply`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from phalanx.cluster.cluster import Cluster, Health
from phalanx.placement.placement import Slot
from phalanx.protocol.action import ActionId
from phalanx.workload.job import Job


class Outcome(StrEnum):
    """How an attempt ended by itself."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


class SuspendRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """How fast the backend moves device memory to the host when it suspends an attempt, and back when that goes on."""

    out_mb_per_s: int
    in_mb_per_s: int


class ClusterDefined(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The first record of every journal: the cluster, the policy and placement that decide on it, the leader's term.

    `lacks` are things the backend cannot do: resize, or share devices by fraction, mps or mig. No plan relies on them.
    Attempts are suspended for other jobs only where the backend says how fast that frees device memory.
    """

    cluster: Cluster
    policy: str
    term: int = 1
    placement: str = "topology"
    lacks: tuple[str, ...] = ()
    suspend: SuspendRates | None = None


class ClusterChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The cluster is another one from now on: nodes came, went or changed, or its queues did."""

    cluster: Cluster


class PolicyChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Another policy decides from now on, and with `placement` another way to choose among places."""

    policy: str
    placement: str = ""


class TermBegun(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A new leader has taken over: actions of older terms are refused from now on.

    `lacks` are the things its backend cannot do, where they may be others than before; `suspend` is as in
    `ClusterDefined`.
    """

    term: int
    lacks: tuple[str, ...] | None = None
    suspend: SuspendRates | None = None


class JobSubmitted(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user submits a job. An array's members are submitted one by one."""

    job: Job


class JobChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user changes what a pending job asks for; it keeps its place among the submissions.

    Of an elastic job that runs, how many members its roles may have can be changed, and nothing else.
    """

    job: Job


class JobCancelled(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user cancels a job. `reason` says why, where that is not the job's own user."""

    job: str
    reason: str = ""


class JobHeld(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user holds a pending job: it does not start for now."""

    job: str


class JobReleased(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user releases a held job: it may start again."""

    job: str


class JobRequeued(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A user has the attempt of a job stopped, with notice and grace; the job is pending for its next one."""

    job: str


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The backend has taken an action on."""

    action: ActionId


class Done(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The backend has carried an action out."""

    action: ActionId


class Failed(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The backend could not carry an action out. `node` is where, if it is known."""

    action: ActionId
    reason: str
    retryable: bool = True
    node: str = ""


class Lost(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """It is unknown what became of an action."""

    action: ActionId


class AttemptEnded(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Every task of an attempt is gone and its devices are free, without our having asked for it.

    `cause` is what ended it, in a word of the backend's: exit, signal, oom, probe, idle. `ended_ms` is when its last
    task was gone, where the backend knows; a server that was down hears of it later.
    """

    job: str
    attempt: int
    outcome: Outcome
    exit_code: int = 0
    reason: str = ""
    cause: str = ""
    ended_ms: int | None = None


class NodeHealthChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A node became healthy, suspect, draining or failed."""

    node: str
    health: Health
    reason: str = ""


class DeviceHealthChanged(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """One device became healthy, suspect, draining or failed."""

    node: str
    device: int
    health: Health
    reason: str = ""


class CanaryPlaced(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """A held job of one task is to run on a suspect node, on devices that nothing holds: it tells whether the node is
    well. The decisions place nothing there.
    """

    job: str
    node: str


class ForeignUse(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """What work that phalanx did not start holds of a node, in place of whatever was said of that node before.

    `devices` are those that it is known to hold; `gpus` counts further ones of which only the number is known.
    """

    node: str
    devices: tuple[int, ...] = ()
    gpus: int = 0
    cpus_milli: int = 0
    memory_mb: int = 0


class DevicesAssigned(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The engine that runs an attempt gave it other devices than were planned: `slots` are all it has, in rank order.

    An engine that chooses devices itself says so before it answers `Done`.
    """

    job: str
    attempt: int
    slots: tuple[Slot, ...]


class Progress(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """What an attempt says of itself: how far it is, what of it would survive, and what stopping it would cost.

    `diverged` are metrics that are no numbers any more, which JSON cannot write.
    """

    job: str
    attempt: int
    step: int = 0
    samples_per_s: float = 0.0
    durable_step: int = 0
    stop_cost_ms: int = 0
    gpu_busy: float = 0.0
    memory_gb: float = 0.0
    metrics: dict[str, float] = {}
    diverged: tuple[str, ...] = ()


class DeviceMemoryMeasured(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """How much device memory all tasks of an attempt have taken, as the backend sees it."""

    job: str
    attempt: int
    memory_mb: int


class Finding(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """What the launcher of an attempt has found out about one of its tasks while it ran, and where that is.

    `kind` is slow, recovered, hang, lost, failed or failing; `rank` is the rank of the training, and `device` the
    node's number of its device, -1 where either is not known. It changes nothing that is decided: those who watch over
    nodes go by it.
    """

    job: str
    attempt: int
    kind: str
    task: int
    node: str
    rank: int = -1
    device: int = -1
    text: str = ""


class Advice(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """The rounded answer of a solver that a policy asked at a wake-up. Replays use it instead of asking again."""

    policy: str
    body: dict[str, float]


class TimerDue(msgspec.Struct, frozen=True, omit_defaults=True, tag=True):
    """Time has passed: what the State had set for this moment happens now."""


Event = (
    ClusterDefined
    | ClusterChanged
    | PolicyChanged
    | TermBegun
    | JobSubmitted
    | JobChanged
    | JobCancelled
    | JobHeld
    | JobReleased
    | JobRequeued
    | Accepted
    | Done
    | Failed
    | Lost
    | AttemptEnded
    | NodeHealthChanged
    | DeviceHealthChanged
    | CanaryPlaced
    | ForeignUse
    | DevicesAssigned
    | Progress
    | DeviceMemoryMeasured
    | Finding
    | Advice
    | TimerDue
)
