"""From kill -9 of one rank to the first new step, beside torchrun, in one run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.bench.launch.run import LAUNCH, PRELOAD, TORCHRUN, Run
from phalanx.bench.row import Row, Tell, ratio, row

GOAL = 5.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How many ranks, and how often each way is tried."""

    ranks: int
    times: int


@dataclass(frozen=True, slots=True)
class Way:
    """A launcher's command up to the program, the loop of its ranks, and where their state is kept."""

    launcher: Sequence[str]
    loop: str
    state: str = ""


FULL = Scale(ranks=8, times=3)
QUICK = Scale(ranks=2, times=1)


def run(scale: Scale, tell: Tell) -> list[Row]:
    ranks = str(scale.ranks)
    torchrun = (*TORCHRUN, "--standalone", "--nproc-per-node", ranks, "--max-restarts", "9")
    launch = (*LAUNCH, "--nproc-per-node", ranks, "--max-restarts", "9")
    cold = (*launch, "--", sys.executable)
    warm = (*launch, "--standby", ranks, "--preload", PRELOAD, "--", sys.executable)
    ways = {
        "torchrun restart + disk": Way(torchrun, "train", "disk"),
        "torchrun + our checkpoints": Way(torchrun, "train", "host"),
        "launcher + our checkpoints": Way(cold, "train", "host"),
        "launcher with survivors": Way(cold, "survive"),
        "launcher with standby + our checkpoints": Way(warm, "train", "host"),
        "launcher with survivors and standby": Way(warm, "survive"),
    }
    seconds = {name: _recovered(way, scale, name, tell) for name, way in ways.items()}
    rows = [row(f"launch: first new step of {ranks} ranks, {name}", each, "s") for name, each in seconds.items()]
    first, *_, standby, best = seconds.values()
    return [
        *rows,
        row("launch: launcher with standby / torchrun restart + disk", ratio(standby, first), "×", 1 / GOAL),
        row("launch: with survivors and standby / torchrun restart + disk", ratio(best, first), "×", 1 / GOAL),
    ]


def _recovered(way: Way, scale: Scale, name: str, tell: Tell) -> float:
    """The median of the seconds until any rank has done a step again."""
    with Run() as run:
        agent = run.start(way.launcher, way.loop, variables={"BENCH_STATE": way.state})
        found = []
        for _ in range(scale.times):
            found.append(_killed(run, scale.ranks))
            tell(f"launch: {name}: {found[-1]:.2f} s")
        run.let_go()
        agent.wait()
    return sorted(found)[len(found) // 2]


def _killed(run: Run, ranks: int) -> float:
    """Kills a rank that is well under way; the seconds to the first step of another process."""
    begun = time.time()
    steps = run.until(lambda: run.steps(ranks, begun)[20 * ranks :], "steps before the kill")
    old = {note["pid"] for note in run.notes("began")}
    os.kill(steps[-1]["pid"], signal.SIGKILL)
    killed_s = time.time()
    new = run.until(lambda: [note for note in run.steps(ranks, killed_s) if note["pid"] not in old], "steps after it")
    return float(new[0]["at_s"]) - killed_s
