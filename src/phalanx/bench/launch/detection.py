"""How soon a failure is noticed, whether the right rank and cause are named, and whether slow ranks are left alone."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from dataclasses import dataclass

from phalanx.bench.launch.faults import KINDS, fault_of
from phalanx.bench.launch.run import LAUNCH, PATIENCE_S, PRELOAD, Process, Run
from phalanx.bench.row import Row, Tell, row

EXIT_MOST_S = 0.2
FAULT_MOST_S = 20.0
"""How long a fault and the restart after it may take on a busy machine."""

RIGHT_LEAST = 0.95


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is tried."""

    ranks: int
    faults: int
    slow_steps: int
    hang_timeout_s: float


FULL = Scale(ranks=2, faults=200, slow_steps=1000, hang_timeout_s=3.0)
QUICK = Scale(ranks=2, faults=3, slow_steps=20, hang_timeout_s=2.0)


def run(scale: Scale, tell: Tell) -> list[Row]:
    return [*noticed(scale, tell), *left_alone(scale, tell), *named(scale, tell)]


def noticed(scale: Scale, tell: Tell) -> list[Row]:
    """Seconds from the fault to the launcher's first word of it."""
    tell("launch: a rank is killed, then another one is stopped")
    with Run() as run:
        agent = run.start(_launcher(scale), "train")
        killed_s = _struck(run, agent, signal.SIGKILL, "ended by SIGKILL", scale)
        stopped_s = _struck(run, agent, signal.SIGSTOP, "no progress", scale)
        run.let_go()
    return [
        row("launch: an exit is noticed after", killed_s, "s", EXIT_MOST_S),
        row(
            f"launch: a hang is noticed after, with a time-out of {scale.hang_timeout_s:g} s",
            stopped_s,
            "s",
            2 * scale.hang_timeout_s,
        ),
    ]


def _struck(run: Run, agent: Process, number: signal.Signals, words: str, scale: Scale) -> float:
    begun = time.time()
    steps = run.until(lambda: run.steps(scale.ranks, begun)[5 * scale.ranks :], "steps before the fault")
    victim, said = steps[-1]["pid"], len(agent.lines)
    os.kill(victim, number)
    at_s = time.time()
    noticed = run.until(
        lambda: [seen_s for seen_s, line in agent.lines[said:] if words in line], f"the launcher says {words!r}"
    )
    return float(noticed[0]) - at_s


def left_alone(scale: Scale, tell: Tell) -> list[Row]:
    """Restarts of a training in which one rank is sometimes ten times as slow as the others."""
    tell(f"launch: {scale.slow_steps} steps with a slow rank")
    with Run() as run:
        run.start(_launcher(scale), "slow", scale.slow_steps).wait(PATIENCE_S + scale.slow_steps)
        restarts = max(note["phalanx_epoch"] for note in run.notes("began")) - 1
        ended = len(run.notes("ended"))
    false = restarts if ended == scale.ranks else None
    return [row(f"launch: false kills of a slow rank in {scale.slow_steps} steps", false, "kills", 0)]


def named(scale: Scale, tell: Tell) -> list[Row]:
    """The share of faults of which rank and cause are not what was injected."""
    tell(f"launch: {scale.faults} faults")
    patience = ("--max-restarts", str(scale.faults), "--retry-program-errors")
    warm = ("--standby", str(scale.ranks), "--preload", PRELOAD)
    with Run() as run:
        agent = run.start(_launcher(scale, *patience, *warm), "faults", scale.faults)
        code = agent.wait(PATIENCE_S + FAULT_MOST_S * scale.faults)
        said = "\n".join(line for _, line in agent.lines)
    told = dict(re.findall(r"^phalanx: epoch (\d+): running, (.*)$", said, re.MULTILINE))
    wrong = [epoch for epoch in range(1, scale.faults + 1) if not _is_right(epoch, told.get(str(epoch + 1), ""), scale)]
    for epoch in wrong:
        said_of_it = told.get(str(epoch + 1), "nothing")
        tell(f"launch: fault {epoch} was {fault_of(epoch, scale.ranks)}; said: {said_of_it}")
    right = scale.faults - len(wrong)
    return [
        row("launch: faults injected", scale.faults, "faults"),
        row("launch: right rank and cause named", right, "faults"),
        row("launch: share of faults not named rightly", len(wrong) / scale.faults, "", 1 - RIGHT_LEAST),
        row("launch: exit code of the run with all these faults", code, "", 0),
    ]


def _is_right(epoch: int, said: str, scale: Scale) -> bool:
    fault = fault_of(epoch, scale.ranks)
    return said.startswith(f"rank {fault.rank} on ") and KINDS[fault.kind][1] in said


def _launcher(scale: Scale, *options: str) -> list[str]:
    patience = ("--hang-timeout", str(scale.hang_timeout_s), "--shutdown-timeout", "2")
    return [*LAUNCH, "--nproc-per-node", str(scale.ranks), *patience, *options, "--", sys.executable]
