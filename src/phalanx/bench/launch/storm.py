"""Random joins and leaves of agents on hosts of their own, by cuts, pauses, deaths and plan, and an audit of it all."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.bench.launch import audit, warm
from phalanx.bench.launch.hosts import Hosts
from phalanx.bench.launch.run import LAUNCH, PATIENCE_S, Process, Run
from phalanx.bench.launch.storm_rank import BATCH, SAMPLES
from phalanx.bench.row import Row, Tell, row

PORT = 29400
LEAST = 2
STEP_MOST_S = 0.1
"""How long a step of the undisturbed run may take on a busy machine."""

LEASE_S = 1
RANK = str(Path(__file__).with_name("storm_rank.py"))
PRELOAD = "torch,torch.distributed,phalanx.bench.launch.storm_rank"

LEAVES = ("cut", "pause", "freeze", "kill", "leave")
"""Ranks of an agent that is paused go on; of one that is frozen they do not."""

LONG = (0.02, 0.01)
"""Seconds on the way, and the part that is lost."""

FOUNDER = 0
"""The host of the endpoint. Another agent there would found another run while it is gone: its own comes back."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many hosts there are, and how many times one leaves or joins."""

    hosts: int
    changes: int


FULL = Scale(hosts=5, changes=200)
QUICK = Scale(hosts=3, changes=4)


class Storm:
    """Hosts with one agent each; those that are gone remember how."""

    def __init__(self, run: Run, hosts: Hosts, drawn: random.Random) -> None:
        self._run, self._hosts, self._drawn = run, hosts, drawn
        self._notes = Tail(run.folder / "notes")
        self._gone: dict[int, str] = {}
        self._slow: int | None = None
        self._is_long = False
        self.changes: Counter[str] = Counter()
        self._agents = {host: self._start(host) for host in range(hosts.count)}

    @property
    def present(self) -> list[int]:
        return [host for host in range(self._hosts.count) if host not in self._gone]

    def change(self) -> str:
        """One leave or join; what it was."""
        self._change_speed()
        self._change_delay()
        can_leave = len(self.present) > LEAST
        if not self._gone or (can_leave and self._drawn.random() < 0.5):
            return self._take_away(self._drawn.choice(self.present))
        # The founder first: others ask at its host.
        return self._bring_back(FOUNDER if FOUNDER in self._gone else self._drawn.choice(sorted(self._gone)))

    def settled(self) -> float:
        """Waits until all that are present have done a step in one world that began since; the seconds it took."""
        began_s, size, epoch = time.time(), len(self.present), self._notes.epoch

        def is_there() -> bool:
            self._notes.read()
            return self._notes.epoch > epoch and len(self._notes.ranks) == self._notes.world_size == size

        self._run.until(is_there, f"a world of hosts {self.present} after epoch {epoch}")
        return time.time() - began_s

    def end(self) -> int:
        """Has all come back, and trains on to a last step, which it gives."""
        while self._gone:
            self.change_back()
            self.settled()
        last = self._notes.step + 100
        (self._run.folder / "end").write_text(str(last))
        for agent in self._agents.values():
            agent.wait()
        return last

    def change_back(self) -> None:
        self._bring_back(FOUNDER if FOUNDER in self._gone else min(self._gone))

    def longest_without_a_step(self) -> float:
        self._notes.read()
        return self._notes.longest_s

    def _take_away(self, host: int) -> str:
        kind = self._drawn.choice(LEAVES[:3] if host == FOUNDER else LEAVES)
        agent = self._agents[host]
        if kind == "cut":
            self._hosts.cut(host)
        elif kind == "freeze":
            self._hosts.signal(host, signal.SIGSTOP)
        elif kind == "leave":
            agent.leave()
        else:
            agent.send(signal.SIGSTOP if kind == "pause" else signal.SIGKILL)
        self._gone[host] = kind
        self.changes[kind] += 1
        return f"host {host}: {kind}"

    def _bring_back(self, host: int) -> str:
        kind = self._gone.pop(host)
        if kind == "cut":
            self._hosts.heal(host)
        elif kind == "freeze":
            self._hosts.signal(host, signal.SIGCONT)
        elif kind == "pause":
            self._agents[host].send(signal.SIGCONT)
        else:
            self._agents[host].wait()
            self._agents[host] = self._start(host)
        self.changes["join"] += 1
        return f"host {host}: joins after {kind}"

    def _change_speed(self) -> None:
        """One host at a time has a slow line, for a while."""
        if self._drawn.random() < 0.1:
            if self._slow is not None:
                self._hosts.speed_up(self._slow)
            self._slow = self._drawn.randrange(self._hosts.count) if self._slow is None else None
            if self._slow is not None:
                self._hosts.slow_down(self._slow)
                self.changes["slow line"] += 1

    def _change_delay(self) -> None:
        """The line of the last host is long for a while: frames are late on it, and some are lost."""
        if self._drawn.random() < 0.1:
            self._is_long = not self._is_long
            self._hosts.delay(self._hosts.count - 1, *(LONG if self._is_long else (0.0, 0.0)))
            self.changes["long line"] += self._is_long

    def _start(self, host: int) -> Process:
        where = ("--rdzv-endpoint", f"{self._hosts.address(0)}:{PORT}", "--local-addr", self._hosts.address(host))
        conf = ("--rdzv-conf", f"lease={LEASE_S},last_call_timeout=1", "--max-restarts", "100000")
        standby = ("--standby", "1", "--preload", PRELOAD)
        words = [*LAUNCH, "--nnodes", f"{LEAST}:{self._hosts.count}", *where, *conf, *standby, "--", self._run.python]
        words += [RANK, str(self._run.folder)]
        process = Process(self._run.python, words, {}, before=self._hosts.command(host))
        self._run.processes.append(process)
        return process


class Tail:
    """Reads on in the notes of ranks: the newest world that has done a step, and the times between steps."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.epoch = self.step = self.world_size = 0
        self.ranks: set[int] = set()
        self.longest_s = self._last_s = 0.0

    def read(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for note in map(json.loads, whole.splitlines()):
            if note["event"] == "counts":
                self._take(note)

    def _take(self, note: dict[str, Any]) -> None:
        if note["phalanx_epoch"] > self.epoch:
            self.epoch, self.world_size, self.ranks = note["phalanx_epoch"], note["world_size"], set()
        if note["phalanx_epoch"] == self.epoch:
            self.ranks.add(note["rank"])
        if note["step"] > self.step:
            if self._last_s:
                self.longest_s = max(self.longest_s, note["at_s"] - self._last_s)
            self.step, self._last_s = note["step"], note["at_s"]


def run(scale: Scale, tell: Tell) -> list[Row]:
    # Imports by each agent that comes anew would take most of the time on a busy machine.
    with Run(warm.python()) as run, Hosts(scale.hosts, long_lines=[scale.hosts - 1]) as hosts:
        storm = Storm(run, hosts, random.Random(7))
        storm.settled()
        seconds = []
        for number in range(scale.changes):
            what = storm.change()
            seconds.append(storm.settled())
            tell(f"launch: change {number + 1} of {scale.changes}: {what}: {seconds[-1]:.2f} s")
        last = storm.end()
        notes = [note for event in ("computed", "counts") for note in run.notes(event)]
        # A rank that left by plan has written that of the step at which it left.
        digests = {note["digest"] for note in run.notes("digest") if note["step"] == last}
        said = [[line for _, line in agent.lines] for agent in run.processes]
        longest_s, changes = storm.longest_without_a_step(), dict(storm.changes)
    tell(f"launch: {changes}")
    undisturbed = _undisturbed(last)
    found = audit.counted(notes, last, BATCH)
    for step in (*found.twice, *found.by_a_part):
        tell(f"launch: of step {step}: {[note for note in notes if note['step'] == step]}")
    whole = range(last * BATCH // SAMPLES)
    once = sum(found.samples[epoch, sample] == 1 for epoch in whole for sample in range(SAMPLES))
    return [
        row("launch: joins and leaves", len(seconds), "changes"),
        row("launch: a change until the new world steps, median", sorted(seconds)[len(seconds) // 2], "s"),
        row("launch: a change until the new world steps, longest", max(seconds), "s"),
        row("launch: longest time without a step", longest_s, "s"),
        row("launch: epochs with two worlds or a minority", len(audit.epochs_with_two_worlds(said, LEAST)), "", 0),
        row("launch: steps that count", found.steps, "steps"),
        row("launch: steps that are lost", len(found.missing), "steps", 0),
        row("launch: steps that count twice", len(found.twice), "steps", 0),
        row("launch: steps that count by a part of their world", len(found.by_a_part), "steps", 0),
        row("launch: samples that count once, in whole epochs", once, "samples"),
        row("launch: samples that do not", len(whole) * SAMPLES - once, "samples", 0),
        row("launch: ends with other weights than undisturbed", int(digests != {undisturbed}), "", 0),
        row("launch: tracebacks of agents", sum("Traceback" in line for lines in said for line in lines), "", 0),
    ]


def _undisturbed(last: int) -> str:
    """The weights of one rank that nothing happens to."""
    with Run() as run:
        (run.folder / "end").write_text(str(last))
        words = [*LAUNCH, "--nproc-per-node", "1", "--", run.python, RANK, str(run.folder)]
        agent = Process(run.python, words, {"BENCH_STEP_S": "0"})
        run.processes.append(agent)
        agent.wait(PATIENCE_S + last * STEP_MOST_S)
        return str(run.notes("digest")[-1]["digest"])
