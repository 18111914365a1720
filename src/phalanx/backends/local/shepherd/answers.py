"""The book of an attempt: what was asked, what was answered, and the watchers. Durable before any of them is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending, Moved, TaskOrder
from phalanx.backends.local.folder import SHARED, AttemptFolder, write_durably
from phalanx.backends.local.shepherd.tasks.task import Task
from phalanx.backends.local.shepherd.tasks.task_set import Failure
from phalanx.backends.local.wire import Message, Wire

Pending = tuple[int, int]
"""Term and number of an action that is under way."""


class AnswerLog:
    """Keeps the state of an attempt in its folder, and tells watchers of answers and of the end."""

    def __init__(self, folder: AttemptFolder, newest: int, has_whole_gang: bool = True) -> None:
        self.phase = "starting"
        self._has_whole_gang = has_whole_gang
        self.newest = newest
        self.tasks: dict[int, Task] = {}
        self._folder = folder
        self._answers: list[Answer] = []
        self._watchers: list[Wire] = []
        self._gang_version = 0
        self._since: dict[int, int] = {}
        """With which version of the gang each of its ranks came."""

    def show(self, wire: Wire) -> None:
        """Tells a new watcher all that was answered, and from now on what will be."""
        self._watchers.append(wire)
        wire.send({"answers": self._answers, "ending": None})

    def forget(self, wire: Wire) -> None:
        """Tells a watcher no more."""
        if wire in self._watchers:
            self._watchers.remove(wire)

    def tell_again(self, seq: int) -> bool:
        """Tells the answer to an action once more; False if there is none."""
        known = [answer for answer in self._answers if answer["seq"] == seq]
        if known:
            self._tell({"answers": known, "ending": None})
        return bool(known)

    def answer(self, action: Pending, why: Failure | None = None, moved: Moved | None = None) -> None:
        """Puts down how an action came out, and tells."""
        answer = _answer_to(action, why)
        if moved is not None:
            answer["moved"] = moved
        self._answers.append(answer)
        self.put_down()
        self._tell({"answers": [answer], "ending": None})

    def close(self, answers: Iterable[tuple[Pending, Failure | None]], ending: Ending) -> bool:
        """Puts down the end, with the answers to what was under way, and tells; False if it could not be put down."""
        last = [_answer_to(action, why) for action, why in answers]
        try:
            self._folder.write_state(self._state("ended", [*self._answers, *last], ending))
        except OSError:
            return False
        self._tell({"answers": last, "ending": ending})
        return True

    def tell_end(self, answers: Iterable[tuple[Pending, Failure | None]], ending: Ending) -> None:
        """Tells of the end of an attempt that has no folder any more to put it down in."""
        self._tell({"answers": [_answer_to(action, why) for action, why in answers], "ending": ending})

    def tell_rest(self) -> None:
        """Tells that its devices are left to other attempts, or that nothing runs on them anyway."""
        self._tell({"answers": [], "ending": None, "rests": True})

    def put_down(self) -> None:
        """Writes all that is known. A full disk is no reason to give up what runs: it is written the next time."""
        with suppress(OSError):
            self.put_down_surely()

    def put_down_surely(self) -> None:
        """Writes all that is known, or raises OSError."""
        self._folder.write_state(self._state(self.phase, self._answers, None))

    def _state(self, phase: str, answers: list[Answer], ending: Ending | None) -> AttemptState:
        return AttemptState(
            phase=phase,
            pid=os.getpid(),
            newest=self.newest,
            tasks=[task.state() for task in self.tasks.values()],
            answers=answers,
            ending=ending,
        )

    def give_notice(self, reason: str, grace_ms: int) -> None:
        """Writes how long is left, for tasks that look."""
        with suppress(OSError):
            notice = {"reason": reason, "until_ms": int(time.time() * 1000) + grace_ms}
            write_durably(self._folder.notice_path, notice, SHARED)

    def write_gang(self, joining: Sequence[TaskOrder] = ()) -> None:
        """Writes the members of the gang now and, while it changes, those that it will have."""
        if not self._has_whole_gang:
            return
        self._gang_version += 1
        present = [task.order for task in self.tasks.values()]
        planned = [*(task.order for task in self.tasks.values() if not task.leaving), *joining]
        known, self._since = self._since, {}
        for order in (*present, *planned):
            self._since[order["rank"]] = known.get(order["rank"], self._gang_version)
        gang = {"version": self._gang_version, **self._members(present)}
        if planned != present:
            gang["next"] = self._members(planned)
        with suppress(OSError):
            write_durably(self._folder.gang_path, gang, SHARED)

    def _members(self, orders: Sequence[TaskOrder]) -> dict[str, object]:
        tasks = [
            {
                "rank": order["rank"],
                "role": order["role"],
                "node": order["node"],
                "devices": order["devices"],
                "since": self._since[order["rank"]],
            }
            for order in orders
        ]
        return {"world_size": len(tasks), "tasks": tasks}

    def _tell(self, message: Message) -> None:
        for wire in list(self._watchers):
            wire.send(message)


def _answer_to(action: Pending, why: Failure | None) -> Answer:
    if why is None:
        return Answer(term=action[0], seq=action[1], ok=True, reason="", retryable=True, node="")
    return Answer(term=action[0], seq=action[1], ok=False, reason=why.reason, retryable=why.retryable, node=why.node)
