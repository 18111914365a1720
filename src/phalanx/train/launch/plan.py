"""The scheduler's plan for the world: which tasks of the gang there will be, by the file that it keeps for them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks that are to run, in the order of ranks, and with which version of the gang each came."""

    tasks: tuple[int, ...]
    since: tuple[int, ...]

    @property
    def name(self) -> str:
        """Different for any two plans: a task that comes later has another version, also under an old number."""
        return ",".join(f"{task}.{since}" for task, since in zip(self.tasks, self.since, strict=True))


@dataclass(frozen=True, slots=True)
class Seat:
    """Where this agent stands in the scheduler's gang."""

    gang_file: str
    role: str
    task: int

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Seat | None:
        """By the variables that the scheduler sets; None elsewhere."""
        path, role, task = (variables.get(f"PHALANX_{name}", "") for name in ("GANG_FILE", "ROLE", "RANK"))
        return cls(path, role, int(task)) if path and task.isdigit() else None


class GangFile:
    """What the file says of the tasks of a seat's role. It is replaced as a whole, never written to."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._seen: tuple[int, int] | None = None
        self._plan: Plan | None = None

    def plan(self) -> Plan | None:
        """The newest plan; while a change is under way, that of the gang as it will be. None if there never was one."""
        try:
            found = os.stat(self._seat.gang_file)
            seen = (found.st_ino, found.st_mtime_ns)
            if seen != self._seen:
                with open(self._seat.gang_file) as file:
                    self._plan = self._read(json.load(file))
                self._seen = seen
        except (OSError, ValueError, KeyError, TypeError):
            # What was known before still holds.
            pass
        return self._plan

    def _read(self, said: dict[str, Any]) -> Plan:
        own = [each for each in said.get("next", said)["tasks"] if each["role"] == self._seat.role]
        return Plan(tuple(each["rank"] for each in own), tuple(each.get("since", 1) for each in own))

    def is_founder(self) -> bool:
        """Whether the seat's task is one of those that the attempt began with: others join what is there."""
        plan = self.plan()
        if plan is None or self._seat.task not in plan.tasks:
            return plan is None
        return plan.since[plan.tasks.index(self._seat.task)] == 1
