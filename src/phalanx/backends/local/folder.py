"""The folder of one attempt: its papers, its logs, and the lock that says whether a shepherd looks after it."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any, cast

from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending, Order, Share, Turn

STREAMS = ("out", "err")
"""What a task prints to, each to a file of its own."""

PRIVATE, SHARED = 0o600, 0o644
"""Orders hold secrets; what tasks of another user read holds none."""

_LOGS = tuple(f".{stream}" for stream in STREAMS)


class AttemptFolder:
    """Paths and papers of one attempt below the backend's folder."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.order_path = f"{path}/order.json"
        self.state_path = f"{path}/state.json"
        self.notice_path = f"{path}/shared/notice.json"
        self.gang_path = f"{path}/shared/gang.json"
        self.rest_path = f"{path}/shared/rest.json"
        self.steps_path = f"{path}/shared/steps"
        self.share_path = f"{path}/shared/share.json"
        self.certificate_path = f"{path}/shared/ca.pem"
        self.lock_path = f"{path}/lock"
        self._turn_path = f"{path}/turn.json"

    def make(self) -> None:
        """Makes the folder; what the tasks themselves read lies in `shared`."""
        os.makedirs(f"{self.path}/shared", exist_ok=True)

    def log_path(self, rank: int, stream: str) -> str:
        """Where what a task prints goes: its `out` or its `err`."""
        return f"{self.path}/{rank}.{stream}"

    def printed_bytes(self) -> int:
        """How much its tasks have printed so far."""
        return sum(found.st_size for _, found in self.logs())

    def logs(self) -> list[tuple[str, os.stat_result]]:
        """The files that its tasks print to."""
        try:
            return [(each.path, each.stat()) for each in os.scandir(self.path) if each.name.endswith(_LOGS)]
        except FileNotFoundError:
            return []

    def identity(self) -> tuple[int, int] | None:
        """Which folder it is, also if another is made in its place; None if there is none."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def lock(self) -> int | None:
        """The lock of the process that looks after the attempt, or None if it is taken. It goes with the process."""
        handle = os.open(self.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def order(self) -> Order | None:
        """What was asked for."""
        return cast("Order | None", read_paper(self.order_path))

    def state(self) -> AttemptState | None:
        """What became of it; None if it was never begun."""
        return cast("AttemptState | None", read_paper(self.state_path))

    def gang(self) -> list[dict[str, Any]]:
        """The members of the gang now."""
        return cast("dict[str, Any]", read_paper(self.gang_path))["tasks"]  # type: ignore[no-any-return]

    def write_order(self, order: Order) -> None:
        """Puts down what is asked for."""
        write_durably(self.order_path, order)

    def turn(self) -> Turn | None:
        """The devices that it takes in turns; None if there are none."""
        return cast("Turn | None", read_paper(self._turn_path))

    def write_turn(self, turn: Turn) -> None:
        """Puts down which devices it takes in turns, if any."""
        if turn["places"]:
            write_durably(self._turn_path, turn)

    def write_shares(self, shares: list[Share]) -> None:
        """Puts down what tasks may have of the devices they share, if any, for tasks that look."""
        if shares:
            write_durably(self.share_path, {"tasks": shares}, SHARED)

    def write_state(self, state: AttemptState) -> None:
        """Puts down what became of it."""
        write_durably(self.state_path, state)

    def close(self, answers: list[Answer], ending: Ending) -> AttemptState:
        """Puts down that the attempt is over. Only for the holder of the lock."""
        known = self.state() or new_state()
        known["phase"] = "ended"
        known["answers"] = [*known["answers"], *answers]
        known["newest"] = max([known["newest"], *(answer["seq"] for answer in answers)])
        known["ending"] = known["ending"] or ending
        self.write_state(known)
        return known


def new_state() -> AttemptState:
    """Nothing is known yet."""
    return AttemptState(phase="starting", pid=0, newest=-1, tasks=[], answers=[], ending=None)


def write_durably(path: str, paper: object, mode: int = PRIVATE) -> None:
    """Replaces a file so that a reader, at any moment and after any crash, finds the old or the new whole."""
    draft = f"{path}.new"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w") as file:
        json.dump(paper, file)
        file.flush()
        os.fsync(handle)
    os.replace(draft, path)


def read_paper(path: str) -> Any:
    """A paper; None if there is none."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return None
