"""Capabilities: what a backend can do beyond starting and stopping, declared for people and for the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from phalanx.protocol.event import SuspendRates


class Capability(StrEnum):
    """Something not every backend can do. The words are public: `phalanx backends` shows them."""

    ADOPT = "adopt"
    RESIZE = "resize"
    SUSPEND = "suspend"
    SUSPEND_FREES_MEMORY = "suspend_frees_memory"
    NOTICE = "notice"
    LOGS = "logs"
    EXEC = "exec"
    CPU_LIMIT = "cpu_limit"
    MEMORY_LIMIT = "memory_limit"
    OOM = "oom"
    CONTAINERS = "containers"
    UNIX_USER = "unix_user"
    PROBE = "probe"
    TURNS = "turns"
    FRACTION = "fraction"
    MPS = "mps"
    MIG = "mig"


MEANING: dict[Capability, str] = {
    Capability.ADOPT: "running attempts are found again after the scheduler was killed",
    Capability.RESIZE: "a running attempt takes on and gives up members",
    Capability.SUSPEND: "a running attempt is frozen and let go on",
    Capability.SUSPEND_FREES_MEMORY: "a suspended attempt leaves its devices to others, its device memory on the host",
    Capability.NOTICE: "a stop is announced, and the grace is kept",
    Capability.LOGS: "what a task prints can be read while it runs",
    Capability.EXEC: "a command can be run beside a task",
    Capability.CPU_LIMIT: "a task gets no more CPU than its limit",
    Capability.MEMORY_LIMIT: "a task gets no more memory than its limit",
    Capability.OOM: "a task that ran out of memory is told apart from one that was killed",
    Capability.CONTAINERS: "a task runs in the image it names",
    Capability.UNIX_USER: "a task runs as another Unix user",
    Capability.PROBE: "the tasks of a service are probed and restarted",
    Capability.TURNS: "jobs that take a device in turns run one after the other, a while each",
    Capability.FRACTION: "a task has a part of a device's time",
    Capability.MPS: "a task has a part of a device's threads",
    Capability.MIG: "a device is cut into instances",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a backend can do here. `lacks` says of everything else why it cannot. `suspend` is how fast it moves device
    memory to the host and back, where it does. `real_nodes` are those that are machines: None means all. `simulated`
    are things that jobs may ask for and do not get, with the reason: they are planned with, and nothing enforces them.
    """

    name: str
    summary: str
    lacks: dict[Capability, str]
    suspend: SuspendRates | None = None
    real_nodes: tuple[str, ...] | None = None
    simulated: dict[Capability, str] = field(default_factory=dict)

    def can(self, capability: Capability) -> bool:
        """Whether it can do that."""
        return capability not in self.lacks

    @property
    def has(self) -> tuple[Capability, ...]:
        """Everything it can do."""
        return tuple(capability for capability in Capability if self.can(capability))
