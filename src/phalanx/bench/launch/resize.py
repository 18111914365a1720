"""A world that is resized by plan: the seconds without a step, beside torchrun's elastic agents, in one run."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.bench.launch import warm
from phalanx.bench.launch.run import LAUNCH, PRELOAD, TORCHRUN, Process, Run, free_port
from phalanx.bench.row import Row, Tell, row


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of agents, one rank each, and torchrun's wait for more of them."""

    sizes: tuple[int, ...]
    last_call_s: int
    steps: int
    """How many a world does before it is changed. Fewer than take a standby's imports, and the next change waits."""


FULL = Scale((4, 6, 3), last_call_s=30, steps=800)
QUICK = Scale((1, 2, 1), last_call_s=1, steps=20)


class Gang:
    """Agents that come and go, with the file that the scheduler keeps for them."""

    def __init__(self, run: Run, launcher: Sequence[str], port: int) -> None:
        self._run, self._launcher, self._port = run, launcher, port
        self._path = run.folder / "gang.json"
        self._agents: dict[int, Process] = {}
        self._since: dict[int, int] = {}
        self._version = 0

    def become(self, size: int) -> None:
        """Has the gang be of that size: those that leave have gone before others start, as under the server."""
        wanted = range(size)
        self._write(list(self._agents) or wanted, wanted)
        leaving = [self._agents.pop(task) for task in list(self._agents) if task not in wanted]
        for agent in leaving:
            agent.leave()
        for agent in leaving:
            agent.wait()
        self._since = {task: since for task, since in self._since.items() if task in wanted}
        self._write(wanted, wanted)
        for task in wanted:
            if task not in self._agents:
                self._agents[task] = self._run.start(self._launcher, "train", variables=self._variables(task, size))

    def _variables(self, task: int, size: int) -> dict[str, str]:
        return {
            "PHALANX_GANG_FILE": str(self._path),
            "PHALANX_RANK": str(task),
            "PHALANX_ROLE": "worker",
            "PET_NNODES": str(size),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(self._port),
            "BENCH_STATE": "disk",
            # In torch 2.15 a first rank that stays does not tell new ones where its shared store is: they fail.
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }

    def _write(self, present: Sequence[int], coming: Sequence[int]) -> None:
        self._version += 1
        gang = {"version": self._version, "tasks": self._members(present), "next": {"tasks": self._members(coming)}}
        new = Path(f"{self._path}.new")
        new.write_text(json.dumps(gang))
        new.replace(self._path)

    def _members(self, tasks: Sequence[int]) -> list[dict[str, object]]:
        for task in tasks:
            self._since.setdefault(task, self._version)
        return [{"rank": task, "role": "worker", "since": self._since[task]} for task in tasks]


def run(scale: Scale, tell: Tell) -> list[Row]:
    port = free_port()
    elastic = (*TORCHRUN, "--nnodes", f"1:{max(scale.sizes) + 2}", "--max-restarts", "9", "--rdzv-backend=c10d")
    where = (f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf", f"last_call_timeout={scale.last_call_s}")
    ours = "launcher as planned, with standby"
    theirs = f"torchrun, last call {scale.last_call_s} s"
    ways = {
        ours: (*LAUNCH, "--standby", "1", "--preload", PRELOAD, "--", warm.python()),
        "torchrun as planned (--rdzv-backend=phalanx)": (*TORCHRUN, "--rdzv-backend=phalanx", "--max-restarts", "9"),
        theirs: (*elastic, *where),
    }
    rows = []
    for name, launcher in ways.items():
        rows += _resized(name, launcher, port if name == theirs else free_port(), scale, tell)
    return rows


def _resized(name: str, launcher: Sequence[str], port: int, scale: Scale, tell: Tell) -> list[Row]:
    rows = []
    # Six imports of torch at once would take longer than the waits that are measured.
    with Run(warm.python()) as run:
        gang = Gang(run, launcher, port)
        gang.become(scale.sizes[0])
        _await_steps(run, scale.sizes[0], 0.0, scale.steps)
        for before, after in zip(scale.sizes, scale.sizes[1:], strict=False):
            told_s = time.time()
            gang.become(after)
            first_s = _await_steps(run, after, told_s, scale.steps)
            last_s = max(note["at_s"] for note in run.steps(before) if note["at_s"] < first_s)
            tell(f"launch: {name}: {before} to {after}: {first_s - last_s:.2f} s without a step")
            rows.append(row(f"launch: {before} to {after}, {name}: without a step", first_s - last_s, "s"))
            rows.append(row(f"launch: {before} to {after}, {name}: until the new world steps", first_s - told_s, "s"))
        run.let_go()
    return rows


def _await_steps(run: Run, size: int, after_s: float, count: int) -> float:
    """Waits until a world of that size has done so many steps; when it did the first."""
    steps = run.until(lambda: found if len(found := run.steps(size, after_s)) > count * size else [], f"{size} ranks")
    return float(steps[0]["at_s"])
