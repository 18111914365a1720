"""The ranks of one agent in one epoch: their processes, how they ended, and how far they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from phalanx.train.launch import handover, progress, stacks
from phalanx.train.launch.bootstrap import FOLDER, RETURNED, STACK_SIGNAL
from phalanx.train.launch.cause import Cause, Ending, cause_of
from phalanx.train.launch.standby import Forked, Standbys

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))
STACKS_WITHIN_S = 1.0
POLL_S = 0.02

RankProcess = asyncio.subprocess.Process | Forked

log = logging.getLogger("phalanx.launch")


class Workers:
    """Started and stopped once; in between they may change over to other epochs. `on_end` is called when any ends."""

    def __init__(self, host: str, first_rank: int, on_end: Callable[[], None]) -> None:
        self._host, self._first_rank, self._on_end = host, first_rank, on_end
        self._folder = Path(tempfile.mkdtemp(prefix="phalanx-launch-"))
        self._processes: list[RankProcess] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._codes: dict[int, int] = {}
        self._stopping = False
        self._dismissed: set[int] = set()
        """Those that were ended so that another process takes their place."""
        self._changed_s = 0.0
        self._oom_before = oom_kills()
        self.causes: list[Cause] = []

    async def start(self, command: Sequence[str], variables: Sequence[Mapping[str, str]], standbys: Standbys) -> None:
        """Starts one process for each set of variables, of standbys where there are any."""
        for number, values in enumerate(variables):
            process = await self._started(command, self._prepared(number, values), standbys)
            self._processes.append(process)
            self._watchers.append(asyncio.ensure_future(self._watch(number, process)))

    @property
    def can_go_on(self) -> bool:
        """Whether a rank lives that can keep its memory in another epoch."""
        return bool(self._keeping())

    async def change(
        self, first_rank: int, command: Sequence[str], handed: Sequence[handover.Handed], standbys: Standbys
    ) -> int:
        """Begins another epoch: ranks that keep their memory go on, the others are started. How many go on."""
        keeping = self._keeping()
        # What ends from here on ends in the new epoch.
        self.causes, self._first_rank = [], first_rank
        self._changed_s, self._oom_before = time.time(), oom_kills()
        for number in set(range(len(self._processes))) - set(keeping):
            # One that hangs, or that has no memory to keep yet.
            self._end(number)
            await self._watchers[number]
        for number in keeping:
            handover.hand(self._folder_of(number), handed[number])
        for number in sorted(set(range(len(self._processes))) - set(keeping)):
            shutil.rmtree(self._folder_of(number), ignore_errors=True)
            process = await self._started(command, self._prepared(number, handed[number].variables), standbys)
            self._processes[number] = process
            self._codes.pop(number, None)
            self._watchers[number] = asyncio.ensure_future(self._watch(number, process))
        return len(keeping)

    def _keeping(self) -> list[int]:
        hung = {cause.rank - self._first_rank for cause in self.causes if cause.kind == "hang"}
        numbers = [number for number in range(len(self._processes)) if number not in self._codes]
        return [each for each in numbers if each not in hung and handover.is_declared(self._folder_of(each))]

    def _prepared(self, number: int, values: Mapping[str, str]) -> dict[str, str]:
        folder = self._folder_of(number)
        folder.mkdir()
        return {**values, FOLDER: str(folder), "PHALANX_NOTICE_FILE": str(self._folder / "notice")}

    async def _started(self, command: Sequence[str], own: Mapping[str, str], standbys: Standbys) -> RankProcess:
        return await standbys.take(own) or await spawned(command, own)

    def _end(self, number: int) -> None:
        if number not in self._codes:
            self._dismissed.add(number)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[number].pid, signal.SIGKILL)

    @property
    def is_over(self) -> bool:
        return len(self._codes) == len(self._processes)

    @property
    def has_succeeded(self) -> bool:
        return self.is_over and not any(self._codes.values())

    @property
    def pids(self) -> list[int]:
        return [process.pid for number, process in enumerate(self._processes) if number not in self._codes]

    def step(self) -> int | None:
        """The furthest step that any of them has told."""
        told = [progress.read(self._folder_of(number)) for number in range(len(self._processes))]
        return max((each[0] for each in told if each is not None), default=None)

    def busy(self) -> tuple[tuple[int, float], ...]:
        """The seconds that ranks computed a step of late, of those that tell it in this epoch."""
        told = [(number, progress.read(self._folder_of(number))) for number in range(len(self._processes))]
        return tuple(
            (self._first_rank + number, each[2])
            for number, each in told
            if each is not None and each[1] > self._changed_s and not isnan(each[2])
        )

    def stalled_s(self) -> float:
        """For how long no rank has told a step or returned; 0 before the first step, and when all have returned."""
        told = [progress.read(self._folder_of(number)) for number in range(len(self._processes))]
        times = [each[1] for each in told if each is not None]
        if not times or not self._unreturned():
            return 0.0
        returned = (self._returned_s(number) for number in range(len(self._processes)))
        return time.time() - max(*times, *(each for each in returned if each is not None), self._changed_s)

    async def explain_hang(self, stalled_s: float) -> None:
        """Has all ranks write down where they stand, and names those that wait for no other.

        One that has raised an error and is long in ending is named by that: it is what the others wait for.
        """
        self.causes.extend(cause_of(self._ending(number, 1)) for number in self._raised())
        running = self._unreturned()
        for number in running:
            with contextlib.suppress(ProcessLookupError):
                self._processes[number].send_signal(STACK_SIGNAL)
        await asyncio.sleep(STACKS_WITHIN_S)
        for number in running:
            dump = self._stacks(number)
            place = stacks.innermost(dump)
            state = process_state(self._processes[number].pid)
            hung = f"for {stalled_s:.1f} s, " + (
                f"process state {state}" if state in "TtD" else f"it stands at {place}"
            )
            cause = cause_of(Ending(self._first_rank + number, self._host, time.time(), hung=hung, trace=dump))
            if stacks.is_waiting(dump) and state not in "TtD":
                cause = Cause("collective", cause.rank, cause.host, cause.at_s, cause.text, dump, is_cascade=True)
            self.causes.append(cause)
        self._on_end()

    async def stop(self, grace_s: float, reason: str) -> None:
        """Notice, then SIGTERM, then after the grace SIGKILL; returns when all are gone."""
        self._stopping = True
        until_s = time.time() + grace_s
        notice = {"reason": reason, "until_ms": round(until_s * 1e3)}
        with contextlib.suppress(OSError):
            (self._folder / "notice").write_text(json.dumps(notice))
        self._signal(signal.SIGTERM)
        while not self.is_over and time.time() < until_s:
            self._end_what_others_ended()
            await asyncio.sleep(POLL_S)
        self._signal(signal.SIGKILL)
        await asyncio.gather(*self._watchers)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end_what_others_ended(self) -> None:
        """Those whose program has ended by an error of another rank's end. The next rank that waits for one of them has
        that error only once its connections are closed, which Python takes a while for.
        """
        for number in self._raised():
            if cause_of(self._ending(number, 1)).is_cascade:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._processes[number].pid, signal.SIGKILL)

    def _unreturned(self) -> list[int]:
        """Those whose program is under way."""
        numbers = range(len(self._processes))
        return [number for number in numbers if number not in self._codes and self._returned_s(number) is None]

    def _raised(self) -> list[int]:
        """Those whose program has ended with an error, and whose process is there still."""
        numbers = range(len(self._processes))
        return [number for number in numbers if number not in self._codes and self._error(number) is not None]

    def _returned_s(self, number: int) -> float | None:
        """When the program of one has returned."""
        try:
            return (self._folder_of(number) / RETURNED).stat().st_mtime
        except OSError:
            return None

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                # A stopped process takes SIGTERM only when it goes on.
                os.killpg(pid, signal.SIGCONT)
                os.killpg(pid, number)

    async def _watch(self, number: int, process: RankProcess) -> None:
        code = await process.wait()
        self._codes[number] = code
        if number in self._dismissed:
            self._dismissed.discard(number)
            return
        if code != 0 and not self._stopping:
            cause = cause_of(self._ending(number, code))
            log.warning("%s", cause)
            self.causes.append(cause)
        if not self._stopping:
            self._on_end()

    def _ending(self, number: int, code: int) -> Ending:
        rank, now = self._first_rank + number, time.time()
        if code < 0:
            oom = -code == signal.SIGKILL and oom_kills() > self._oom_before
            return Ending(rank, self._host, now, signal=-code, oom=oom, trace=self._stacks(number))
        said = self._error(number)
        if said is None:
            return Ending(rank, self._host, now, code=code)
        return Ending(
            rank, self._host, said["at_s"], code, error=said["error"], message=said["message"], trace=said["trace"]
        )

    def _error(self, number: int) -> dict[str, Any] | None:
        try:
            said: dict[str, Any] = json.loads((self._folder_of(number) / "error.json").read_text())
        except (OSError, ValueError):
            return None
        return said

    def _stacks(self, number: int) -> str:
        try:
            return stacks.newest((self._folder_of(number) / "stacks").read_text())
        except OSError:
            return ""

    def _folder_of(self, number: int) -> Path:
        return self._folder / str(number)


async def spawned(command: Sequence[str], variables: Mapping[str, str]) -> asyncio.subprocess.Process:
    """A process of its own group; a Python program by way of the bootstrap."""
    program = program_of(command)
    parts = list(command) if program is None else [program[0], *program[1], BOOTSTRAP, *program[2]]
    return await asyncio.create_subprocess_exec(*parts, env={**os.environ, **variables}, process_group=0)


def program_of(command: Sequence[str]) -> tuple[str, list[str], list[str]] | None:
    """Interpreter, its options, and what it runs; None for what is no plain call of Python."""
    if command[0].endswith(".py"):
        return sys.executable, ["-u"], list(command)
    if not re.fullmatch(r"python[0-9.]*", os.path.basename(command[0])):
        return None
    options, rest = [], list(command[1:])
    while rest and rest[0] in ("-u", "-O", "-OO", "-B", "-E", "-s"):
        options.append(rest.pop(0))
    if not rest or (rest[0].startswith("-") and rest[0] != "-m") or rest == ["-m"]:
        return None
    return command[0], options, rest


def oom_kills() -> int:
    """How many processes of this control group the kernel has killed for memory."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(path).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def process_state(pid: int) -> str:
    """The letter that the kernel has for what a process does; `?` if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "?"
