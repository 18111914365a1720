"""One attempt as the backend knows it, and its paper: what a server that starts again needs to go on with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from phalanx.backends.attempts import Key
from phalanx.backends.local.attempt_files import Answer
from phalanx.backends.local.folder import AttemptFolder, read_paper, write_durably
from phalanx.backends.slurm.reports import Reports
from phalanx.placement.placement import Slot
from phalanx.protocol.action import ActionId


@dataclass(slots=True)
class SlurmAttempt:
    """`start` is its unanswered start; `stops` the unanswered stops. `slurm_id` is empty until Slurm is known to have
    the job, `released` says that it may start there; until `sought` it is unknown whether a submission went through.
    `failure` is why its start is undone. Nothing is told of a `stray`, which no store knows.
    """

    job: str
    attempt: int
    folder: AttemptFolder
    slots: tuple[Slot, ...]
    argv: list[str]
    start: ActionId | None
    cpus_milli: dict[str, int] = field(default_factory=dict)
    memory_mb: dict[str, int] = field(default_factory=dict)
    slurm_id: str = ""
    released: bool = False
    since_s: float = 0.0
    sought: bool = False
    parts: int = 1
    stops: list[ActionId] = field(default_factory=list)
    kill_at_s: float | None = None
    failure: Answer | None = None
    state: str = ""
    given: tuple[Slot, ...] | None = None
    stray: bool = False

    def __post_init__(self) -> None:
        self.reports = Reports(self.folder.path, self.nodes)

    reports: Reports = field(init=False)

    @property
    def key(self) -> Key:
        """Job and attempt."""
        return self.job, self.attempt

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes it was planned on."""
        return tuple(dict.fromkeys(slot.node for slot in self.slots))

    @property
    def is_leaving(self) -> bool:
        """Whether it is to end: it was asked to stop, or its start has failed."""
        return bool(self.stops) or self.failure is not None

    @property
    def is_moving(self) -> bool:
        """Whether it starts or ends, so that what it was planned with need not be what it holds."""
        return self.start is not None or self.is_leaving

    def holds(self, node: str) -> tuple[int, ...]:
        """The devices it has on a node."""
        return tuple(device for slot in self.given or self.slots if slot.node == node for device in slot.devices)

    def put_down(self) -> None:
        """Writes its paper."""
        paper = {
            "slurm_id": self.slurm_id,
            "released": self.released,
            "argv": self.argv,
            "parts": self.parts,
            "start": list(self.start) if self.start else None,
            "stops": [list(stop) for stop in self.stops],
            "slots": [[slot.rank, slot.role, slot.node, list(slot.devices)] for slot in self.slots],
            "cpus_milli": self.cpus_milli,
            "memory_mb": self.memory_mb,
            "failure": self.failure,
        }
        write_durably(_path(self.folder), paper)


def read_attempt(job: str, attempt: int, folder: AttemptFolder) -> SlurmAttempt | None:
    """An attempt from its paper; None if there is none."""
    paper: dict[str, Any] | None = read_paper(_path(folder))
    if paper is None:
        return None
    return SlurmAttempt(
        job,
        attempt,
        folder,
        tuple(Slot(rank, role, node, tuple(devices)) for rank, role, node, devices in paper["slots"]),
        paper["argv"],
        ActionId(*paper["start"]) if paper["start"] else None,
        paper["cpus_milli"],
        paper["memory_mb"],
        paper["slurm_id"],
        paper["released"],
        stops=[ActionId(*stop) for stop in paper["stops"]],
        parts=paper["parts"],
        failure=paper["failure"],
    )


def _path(folder: AttemptFolder) -> str:
    return f"{folder.path}/slurm.json"
