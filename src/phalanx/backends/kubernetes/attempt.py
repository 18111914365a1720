"""One attempt as the backend knows it, and its paper: what a server that starts again needs to go on with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from phalanx.backends.attempts import Key
from phalanx.backends.kubernetes.manifests import Manifest, Owner
from phalanx.backends.kubernetes.pod import TaskPod
from phalanx.backends.local.attempt_files import Answer, Ending
from phalanx.backends.local.folder import AttemptFolder, read_paper, write_durably
from phalanx.placement.placement import Slot
from phalanx.protocol.action import ActionId


@dataclass(slots=True)
class KubeAttempt:
    """`start` is its unanswered start; `stops` the unanswered stops. Until all is `created` no pod is bound, until it
    is `bound` not all are. `ends` are those of its tasks, by rank. `failure` is why its start is undone, `verdict` how
    it ended without being asked to. Nothing is told of a `stray`, which no store knows.

    The rest is not written down: its pods by rank, ranks whose pod is known to be no more, and until when a task was
    told to have time.
    """

    owner: Owner
    folder: AttemptFolder
    slots: tuple[Slot, ...]
    pod_manifests: list[Manifest]
    start: ActionId | None
    meets: bool = False
    memory_mb: dict[str, int] = field(default_factory=dict)
    created: bool = False
    bound: bool = False
    grace_ms: int = 0
    stops: list[ActionId] = field(default_factory=list)
    stop_grace_ms: int | None = None
    failure: Answer | None = None
    verdict: Ending | None = None
    ends: dict[int, Ending] = field(default_factory=dict)
    stray: bool = False
    since_s: float = 0.0
    adopted: bool = False
    pods: dict[int, TaskPod] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    until_s: dict[int, float] = field(default_factory=dict)
    over_s: float | None = None
    user: str = ""

    @property
    def key(self) -> Key:
        """Job and attempt."""
        return self.owner.job, self.owner.attempt

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes it is on."""
        return tuple(dict.fromkeys(slot.node for slot in self.slots))

    @property
    def is_leaving(self) -> bool:
        """Whether it is to end: it was asked to, its start has failed, or one of its tasks ended it."""
        return bool(self.stops) or self.failure is not None or self.verdict is not None or self.stray

    @property
    def leaving_grace_ms(self) -> int:
        """How long its tasks have to end. What has not started has nothing to save."""
        if self.start is not None or self.failure is not None:
            return 0
        return self.grace_ms if self.stop_grace_ms is None else self.stop_grace_ms

    def slot(self, rank: int) -> Slot:
        """Where a task is."""
        return next(slot for slot in self.slots if slot.rank == rank)

    def is_over(self, rank: int) -> bool:
        """Whether a task uses nothing of its node any more."""
        pod = self.pods.get(rank)
        return rank in self.gone or (pod is not None and pod.is_over)

    def put_down(self) -> None:
        """Writes its paper. It holds no secret: those are in the Secret of the attempt alone."""
        paper = {
            "server": self.owner.server,
            "start": list(self.start) if self.start else None,
            "slots": [[slot.rank, slot.role, slot.node, list(slot.devices)] for slot in self.slots],
            "pods": self.pod_manifests,
            "meets": self.meets,
            "memory_mb": self.memory_mb,
            "created": self.created,
            "bound": self.bound,
            "grace_ms": self.grace_ms,
            "stops": [list(stop) for stop in self.stops],
            "stop_grace_ms": self.stop_grace_ms,
            "failure": self.failure,
            "verdict": self.verdict,
            "ends": {str(rank): end for rank, end in self.ends.items()},
            "user": self.user,
        }
        write_durably(_path(self.folder), paper)


def read_attempt(job: str, attempt: int, folder: AttemptFolder) -> KubeAttempt | None:
    """An attempt from its paper; None if there is none."""
    paper: dict[str, Any] | None = read_paper(_path(folder))
    if paper is None:
        return None
    return KubeAttempt(
        Owner(paper["server"], job, attempt),
        folder,
        tuple(Slot(rank, role, node, tuple(devices)) for rank, role, node, devices in paper["slots"]),
        paper["pods"],
        ActionId(*paper["start"]) if paper["start"] else None,
        paper["meets"],
        paper["memory_mb"],
        paper["created"],
        paper["bound"],
        paper["grace_ms"],
        [ActionId(*stop) for stop in paper["stops"]],
        paper["stop_grace_ms"],
        paper["failure"],
        paper["verdict"],
        {int(rank): end for rank, end in paper["ends"].items()},
        # Papers of older servers name none.
        user=paper.get("user", ""),
    )


def _path(folder: AttemptFolder) -> str:
    return f"{folder.path}/kubernetes.json"
