"""Frames: one number a device, by which a page colours its map, and legends that say what the numbers stand for."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from phalanx.cluster.bits import members
from phalanx.server.accounts.roles import Account
from phalanx.server.api.overview.board import Board
from phalanx.server.figures.outlook import Outlook
from phalanx.server.figures.states import BUSY_BELOW, HEALTHS, IDLE, RESERVED, STATES, health_of, state_of
from phalanx.server.store.devices import Holder, NodeDevices
from phalanx.server.view.devices import CLAIMED, RUNNING, Device

Colour = Literal["state", "job", "queue", "user", "health", "utilization", "age"]

AGES = ("", "under 1 min", "under 10 min", "under 1 h", "under 6 h", "under 1 day", "under 1 week", "1 week or more")
AGE_BOUNDS_MS = (60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
UNKNOWN = 255
HIDDEN = ""
"""The name of what the caller may not look at."""

NOBODY = "nobody"

MOST = {1: 255, 2: 65_535}
"""The highest number that so many bytes hold: it is that of the others."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One number a device, in the order of the map, and what the numbers stand for."""

    content: bytes
    values: list[Any]


@dataclass(frozen=True, slots=True)
class Painter:
    """Colours the devices of a board for one account, at a moment, with so many bytes a device."""

    board: Board
    outlook: Outlook
    account: Account
    now_ms: int
    width: int = 1

    def paint(self, colour: Colour) -> Frame:
        """The frame of a colour."""
        match colour:
            case "state":
                return self._plain(self._states(), STATES)
            case "health":
                return self._plain(self._healths(), HEALTHS)
            case "utilization":
                return self._plain(self._loads(), [])
            case "age":
                return self._plain(self._ages(), AGES)
            case "job":
                return self._named(self._names(lambda job, _: job), self._job)
            case "queue":
                return self._named(self._names(lambda _, holder: holder.queue), str)
            case "user":
                return self._named(self._names(lambda _, holder: holder.user or NOBODY), str)

    def _plain(self, numbers: Iterable[int], values: Iterable[str]) -> Frame:
        return Frame(self._packed(numbers), list(values))

    def _packed(self, numbers: Iterable[int]) -> bytes:
        if self.width == 1:
            return bytes(numbers)
        wide = array("H", numbers)
        if sys.byteorder == "big":
            wide.byteswap()
        return wide.tobytes()

    def _states(self) -> list[int]:
        idle_jobs = {job for job, load in self.outlook.loads.items() if 0 <= load.gpu_busy < BUSY_BELOW}
        states = [state_of(node.health, device, idle_jobs) for node, device in self._each()]
        for node, promised in self.outlook.reserved.items():
            first = self.board.first.get(node)
            for number in members(promised) if first is not None else ():
                if first is not None and first + number < len(states) and states[first + number] == IDLE:
                    states[first + number] = RESERVED
        return states

    def _healths(self) -> list[int]:
        return [HEALTHS.index(health_of(node.health, device)) for node, device in self._each()]

    def _loads(self) -> list[int]:
        loads = self.outlook.loads
        percent = {job: round(100 * load.gpu_busy) if load.gpu_busy >= 0 else UNKNOWN for job, load in loads.items()}
        return [
            (percent.get(device.jobs[0], UNKNOWN) if device.use == RUNNING else UNKNOWN) if device.jobs else 0
            for _, device in self._each()
        ]

    def _ages(self) -> list[int]:
        ages: dict[str, int] = {}
        for job, holder in self.board.holders.items():
            since_ms = holder.running_since_ms
            ages[job] = 1 if since_ms is None else 1 + bisect_right(AGE_BOUNDS_MS, self.now_ms - since_ms)
        return [
            ages.get(device.jobs[0], 1) if device.jobs and device.use != CLAIMED else 0 for _, device in self._each()
        ]

    def _named(self, names: list[str | None], shown: Callable[[str], Any]) -> Frame:
        """Each device by a name. Where there are more than numbers, those with the fewest devices have none."""
        counted = Counter(name for name in names if name)
        chosen = [name for name, _ in counted.most_common(MOST[self.width] - 1)]
        numbers = {name: number for number, name in enumerate(sorted(chosen, key=_by_number), start=1)}
        others = len(numbers) + 1
        values: list[Any] = [None, *map(shown, numbers)]
        if len(counted) > len(chosen) or HIDDEN in names:
            values.append({"others": True})
        return Frame(self._packed(0 if name is None else numbers.get(name, others) for name in names), values)

    def _names(self, name_of: Callable[[str, Holder], str]) -> list[str | None]:
        """The name of the first job on each device; None where there is none, empty where it may not be told."""
        told: dict[str, str] = {}
        for job, holder in self.board.holders.items():
            told[job] = name_of(job, holder) if self.account.sees(holder.queue) else HIDDEN
        return [
            told.get(device.jobs[0], HIDDEN) if device.jobs and device.use != CLAIMED else None
            for _, device in self._each()
        ]

    def _job(self, job: str) -> dict[str, str]:
        holder = self.board.holders[job]
        return {"job": job, "name": holder.name, "queue": holder.queue, "user": holder.user}

    def _each(self) -> Iterable[tuple[NodeDevices, Device]]:
        for place, node in zip(self.board.places, self.board.nodes, strict=True):
            for number in range(place.devices):
                yield node, node.devices[number] if number < len(node.devices) else NOTHING


NOTHING = Device()


def _by_number(name: str) -> tuple[int, str]:
    return (len(name), name)
