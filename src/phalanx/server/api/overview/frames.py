"""Frames: one number a device, by which a page colours its map, and legends that say what the numbers stand for."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal
from zlib import crc32

from phalanx.cluster.bits import members
from phalanx.server.accounts.roles import Account
from phalanx.server.api.overview.board import Board
from phalanx.server.figures.outlook import Outlook
from phalanx.server.figures.states import BUSY, BUSY_BELOW, HEALTHS, HELD, IDLE, RESERVED, STATES
from phalanx.server.store.devices import Holder

Colour = Literal["state", "job", "queue", "user", "health", "utilization", "age", "virtual_cluster"]

AGES = (None, "under 1 min", "under 10 min", "under 1 h", "under 6 h", "under 1 day", "under 1 week", "1 week or more")
AGE_BOUNDS_MS = (60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
UNKNOWN = 255
HIDDEN = ""
"""The name of what the caller may not look at."""

NOBODY = "nobody"
OWN, FREE, OPPORTUNISTIC = "own", "free", "opportunistic"
"""What of a virtual cluster a device is: of its cells and in use, of its cells and not, or used beyond its cells."""

MOST = {1: 255, 2: 65_535}
"""The highest number that so many bytes hold: it is that of all names without a number."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One number a device, in the order of the map. `names` are what the numbers stand for; None stands for nothing,
    an empty name for all the rest.
    """

    content: bytes
    names: Sequence[str | None]
    version: int


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
                return self._frame(self._states(), STATES)
            case "health":
                return self._frame(b"".join(self.board.healths), HEALTHS)
            case "utilization":
                return self._frame(self._by_job(self._load, 0), ())
            case "age":
                return self._frame(self._by_job(self._age, 0), AGES)
            case "job":
                return self._named(lambda job, _: job)
            case "queue":
                return self._named(lambda _, holder: holder.queue)
            case "user":
                return self._named(lambda _, holder: holder.user or NOBODY)
            case "virtual_cluster":
                return self._cells()

    def legend(self, colour: Colour, frame: Frame) -> list[Any]:
        """What the numbers of a frame stand for, as it is told."""
        return [{"others": True} if name == HIDDEN else self._told(colour, name) for name in frame.names]

    def _told(self, colour: Colour, name: str | None) -> Any:
        if colour == "virtual_cluster" and name is not None:
            use, _, owner = name.partition(" ")
            return {"virtual_cluster": owner, "use": use}
        if colour != "job" or name is None:
            return name
        holder = self.board.holders[name]
        return {"job": name, "name": holder.name, "queue": holder.queue, "user": holder.user}

    def _frame(self, numbers: Iterable[int], names: Sequence[str | None]) -> Frame:
        version = crc32("\n".join([name or "" for name in names]).encode())
        if self.width == 1:
            return Frame(bytes(numbers), names, version)
        wide = array("H", numbers)
        if sys.byteorder == "big":
            wide.byteswap()
        return Frame(wide.tobytes(), names, version)

    def _states(self) -> bytearray:
        """What each device is doing, with what only the outlook knows: jobs that do not use them, what is reserved."""
        states = bytearray(b"".join(self.board.states))
        idle_jobs = {job for job, load in self.outlook.loads.items() if 0 <= load.gpu_busy < BUSY_BELOW}
        for place, job in enumerate(self._first_jobs()) if idle_jobs else ():
            if job in idle_jobs and states[place] == BUSY:
                states[place] = HELD
        for node, promised in self.outlook.reserved.items():
            first = self.board.first.get(node, len(states))
            for place in (first + number for number in members(promised)):
                if place < len(states) and states[place] == IDLE:
                    states[place] = RESERVED
        return states

    def _cells(self) -> Frame:
        """Each device by the virtual cluster that uses it or has it bound. Jobs name theirs as their queue."""
        owners: list[str | None] = [None] * self.board.devices
        for owner, nodes in self.outlook.cells.items():
            for node, devices in nodes.items():
                first = self.board.first.get(node, len(owners))
                for place in (first + number for number in members(devices)):
                    if place < len(owners):
                        owners[place] = owner
        names = [self._cell_name(owner, job) for owner, job in zip(owners, self._first_jobs(), strict=True)]
        shown = [name for name in sorted({name for name in names if name}) if self._sees_cell(name)]
        numbers: dict[str | None, int] = {None: 0}
        for name in shown[: MOST[self.width] - 1]:
            numbers[name] = len(numbers)
        hidden = [HIDDEN] if any(name not in numbers for name in names) else []
        return self._frame((numbers.get(name, len(numbers)) for name in names), [*numbers, *hidden])

    def _cell_name(self, owner: str | None, job: str | None) -> str | None:
        holder = None if job is None else self.board.holders.get(job)
        if holder is None:
            return None if owner is None else f"{FREE} {owner}"
        return f"{OWN if owner == holder.queue else OPPORTUNISTIC} {holder.queue}"

    def _sees_cell(self, name: str) -> bool:
        return self.account.sees(name.partition(" ")[2])

    def _load(self, job: str) -> int:
        load = self.outlook.loads.get(job)
        return UNKNOWN if load is None or load.gpu_busy < 0 else round(100 * load.gpu_busy)

    def _age(self, job: str) -> int:
        holder = self.board.holders.get(job)
        if holder is None or holder.running_since_ms is None:
            return 1
        return 1 + bisect_right(AGE_BOUNDS_MS, self.now_ms - holder.running_since_ms)

    def _by_job(self, number_of: Callable[[str], int], nothing: int) -> Iterable[int]:
        """A number for each device that follows from its first job."""
        jobs = self._first_jobs()
        numbers = {job: nothing if job is None else number_of(job) for job in dict.fromkeys(jobs)}
        return map(numbers.__getitem__, jobs)

    def _named(self, name_of: Callable[[str, Holder], str]) -> Frame:
        """Each device by a name that its first job has. Where there are more names than numbers, those of the fewest
        devices have none of their own.
        """
        jobs = self._first_jobs()
        name = self._names(dict.fromkeys(jobs), name_of)
        there = dict.fromkeys(name.values())
        is_hidden = HIDDEN in there
        there.pop(HIDDEN, None)
        chosen, most = list(there), MOST[self.width] - 1
        if len(chosen) > most:
            counted = Counter(name[job] for job in jobs if job is not None)
            chosen = sorted(chosen, key=counted.__getitem__, reverse=True)[:most]
        # By length first: jobs are in the order of their ids.
        chosen.sort()
        chosen.sort(key=len)
        numbers = {each: number for number, each in enumerate(chosen, start=1)}
        others = len(numbers) + 1
        names: list[str | None] = [None, *numbers]
        if is_hidden or len(there) > len(chosen):
            names.append(HIDDEN)
        place: dict[str | None, int] = {job: numbers.get(each, others) for job, each in name.items()}
        place[None] = 0
        return self._frame(map(place.__getitem__, jobs), names)

    def _names(self, jobs: Iterable[str | None], name_of: Callable[[str, Holder], str]) -> dict[str, str]:
        """The names of jobs; empty for those that the account may not look at."""
        known = [(job, self.board.holders.get(job)) for job in jobs if job is not None]
        queues = dict.fromkeys(holder.queue for _, holder in known if holder is not None)
        seen = {queue for queue in queues if self.account.sees(queue)}
        return {
            job: name_of(job, holder) if holder is not None and holder.queue in seen else HIDDEN
            for job, holder in known
        }

    def _first_jobs(self) -> list[str | None]:
        return list(chain.from_iterable(self.board.first_jobs))
