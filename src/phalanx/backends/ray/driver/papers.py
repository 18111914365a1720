"""The papers of a gang: what was asked and answered, in the attempt's folder before any server is told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending, TaskOrder
from phalanx.backends.local.folder import SHARED, STREAMS, AttemptFolder, new_state, write_durably
from phalanx.backends.local.logs.times import begin_times
from phalanx.backends.local.wire import Message, Wire
from phalanx.backends.ray.driver.cluster import Refused

Pending = tuple[int, int]
"""Term and number of an action that is under way."""


class Papers:
    """Keeps what a gang must know after its driver was killed. `held` is what it has of Ray."""

    def __init__(self, folder: AttemptFolder) -> None:
        order, state = folder.order(), folder.state()
        assert order is not None, f"{folder.path} has no order"
        self.folder = folder
        self.order: Any = order
        self.state: AttemptState = state or new_state()
        self.held: dict[str, Any] = self.state.setdefault("ray", {"members": {}, "groups": {}})  # type: ignore[typeddict-item]
        if state is None:
            self.state["newest"] = order["seq"]
        self.wires: list[Wire] = []

    @property
    def tasks(self) -> list[TaskOrder]:
        """The tasks that the gang has now."""
        return self.order["tasks"]  # type: ignore[no-any-return]

    def known(self, seq: int) -> list[Answer]:
        """What was answered to an action."""
        return [answer for answer in self.state["answers"] if answer["seq"] == seq]

    def show(self, wire: Wire) -> None:
        """Tells a server all that was answered, and from now on what will be."""
        self.wires.append(wire)
        wire.send({"answers": self.state["answers"], "ending": None, "slots": self._slots()})

    def tell_again(self, seq: int) -> bool:
        """Tells the answer to an action once more; False if there is none."""
        known = self.known(seq)
        if known:
            self._tell({"answers": known, "ending": None})
        return bool(known)

    def answer(self, action: Pending, why: Refused | None = None) -> None:
        """Puts down how an action came out, and tells."""
        told = answer_to(action, why)
        self.state["answers"].append(told)
        self.put_down()
        self._tell({"answers": [told], "ending": None, "slots": self._slots()})

    def close(self, answers: list[Answer], ending: Ending) -> None:
        """Puts down the end, and tells. Raises OSError where the disk is full."""
        all_answers = [*self.state["answers"], *answers]
        self.folder.write_state({**self.state, "phase": "ended", "answers": all_answers, "ending": ending})
        self._tell({"answers": answers, "ending": ending})

    def put_down(self) -> None:
        """Writes what is known. A full disk is no reason to give up what runs: it is written the next time."""
        with suppress(OSError):
            self.folder.write_state(self.state)

    def begin_logs(self, ranks: Sequence[int]) -> None:
        """Has there be logs of tasks, empty so far, as there are of tasks on this machine."""
        for path in (self.folder.log_path(rank, stream) for rank in ranks for stream in STREAMS):
            with suppress(OSError):
                open(path, "ab").close()
                begin_times(path)

    def write_order(self, tasks: Sequence[TaskOrder]) -> None:
        """The gang has these tasks from now on."""
        self.order["tasks"] = sorted(tasks, key=lambda task: task["rank"])
        self.folder.write_order(self.order)

    def write_gang(self, planned: Sequence[TaskOrder] | None = None) -> dict[str, Any]:
        """Writes the members of the gang now and, while it changes, those that it will have; the same for all nodes."""
        self.held["version"] = version = self.held.get("version", 0) + 1
        since: dict[str, int] = self.held.setdefault("since", {})
        everyone = [*self.tasks, *(planned or ())]
        self.held["since"] = since = {_seat(task): since.get(_seat(task), version) for task in everyone}
        gang: dict[str, Any] = {"version": version, **_members(self.tasks, since)}
        if planned is not None:
            gang["next"] = _members(planned, since)
        with suppress(OSError):
            write_durably(self.folder.gang_path, gang, SHARED)
        return gang

    def _slots(self) -> list[list[Any]]:
        """The devices that it has, where any is another than was planned."""
        if not self.held.get("moved", False):
            return []
        return [[task["rank"], task["role"], task["node"], task["devices"]] for task in self.tasks]

    def _tell(self, message: Message) -> None:
        for wire in self.wires:
            wire.send(message)


def answer_to(action: Pending, why: Refused | None) -> Answer:
    """How an action came out."""
    if why is None:
        return Answer(term=action[0], seq=action[1], ok=True, reason="", retryable=True, node="")
    return Answer(term=action[0], seq=action[1], ok=False, reason=why.reason, retryable=why.retryable, node=why.node)


def _seat(task: TaskOrder) -> str:
    """One that moves to another node is another member, of the same rank."""
    return f"{task['rank']}@{task['node']}"


def _members(tasks: Sequence[TaskOrder], since: dict[str, int]) -> dict[str, Any]:
    told = [
        {
            "rank": task["rank"],
            "role": task["role"],
            "node": task["node"],
            "devices": task["devices"],
            "since": since[_seat(task)],
        }
        for task in tasks
    ]
    return {"world_size": len(told), "tasks": told}
