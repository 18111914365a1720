"""kill -9 under load: processes of a live server are killed at random moments, and nothing may be lost or doubled.

Real jobs run on this machine. Each writes a line when it starts and one when it ends; the lines, the answers that
clients got and the processes that are left over are compared in the end.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from phalanx.bench.row import Row, Tell, row
from phalanx.bench.server.live import API, LiveServer

PARTS = ("loop", "loop", "loop", "loop", "api", "planner", "up")
"""Which process is killed how often: the loop most of all, for it is the one that could forget something."""

SEED = 7
PAUSE_S = (0.05, 1.5)
"""Between two kills: from the middle of a start to well after it."""

SETTLED = 0.8
"""How often the server is left to come to itself before the next kill; otherwise it is killed while it recovers."""

JOB = (
    'echo "$PHALANX_JOB_ID $PHALANX_ATTEMPT start" >> "$LEDGER"; '
    'sleep 0.$((RANDOM % 10)); echo "$PHALANX_JOB_ID end" >> "$LEDGER"'
)
AT_ONCE = 24
"""Jobs that are under way at a time: enough that every kill finds some in every phase."""

SETTLE_S = 120.0


@dataclass(slots=True)
class Submitter:
    """Submits jobs all the time, and asks again with the same key until it has an answer."""

    server: LiveServer
    ledger: Path
    acknowledged: dict[str, str] = field(default_factory=dict)
    doubled: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Submits until told to stop."""
        number = 0
        while not self.stop.is_set():
            if len(self.acknowledged) - self._ended() >= AT_ONCE:
                time.sleep(0.02)
                continue
            number += 1
            key = f"kill-{number}"
            job = self._submit(key)
            self.doubled += job in self.acknowledged.values()
            self.acknowledged[key] = job

    def _submit(self, key: str) -> str:
        job = {
            "name": key,
            "gpus": 1,
            "command": ["bash", "-c", JOB],
            "env": {"LEDGER": str(self.ledger)},
            "grace": "2s",
        }
        while True:
            with suppress(OSError, HTTPException, ValueError):
                status, body = self.server.ask("POST", f"{API}/jobs", job, key)
                if status == 201:
                    return str(body["id"])
            time.sleep(0.02)

    def _ended(self) -> int:
        return len(ended(self.ledger))


def run(kills: int, tell: Tell) -> list[Row]:
    """Kills so many times, lets everything come to rest, and counts."""
    with tempfile.TemporaryDirectory(prefix="phalanx-kills-") as folder:
        server = LiveServer(Path(folder, "data"), "--backend", "local", "--nodes", "4", "--gpus", "8")
        ledger = Path(folder, "ledger")
        ledger.touch()
        # Jobs of a server that is root are other users, and all write here.
        ledger.chmod(0o666)
        server.start()
        try:
            submitter = Submitter(server, ledger)
            worker = threading.Thread(target=submitter.run)
            worker.start()
            _kill(server, kills, tell)
            submitter.stop.set()
            worker.join()
            jobs = _settled(server)
            return _count(kills, submitter, jobs, ledger, Path(folder))
        finally:
            server.stop()


def _kill(server: LiveServer, kills: int, tell: Tell) -> None:
    chance = random.Random(SEED)
    for number in range(1, kills + 1):
        if chance.random() < SETTLED:
            server.until_ready()
        time.sleep(chance.uniform(*PAUSE_S))
        part = chance.choice(PARTS)
        server.kill(part)
        if part == "up":
            server.start()
        if number % 25 == 0:
            tell(f"kills: {number} of {kills}")
    server.until_ready()


def _settled(server: LiveServer) -> dict[str, dict[str, Any]]:
    """All jobs, once none is under way."""
    deadline_s = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline_s:
        with suppress(OSError, HTTPException):
            _, body = server.ask("GET", f"{API}/jobs?limit=1&state=waiting,starting,running,suspended,stopping")
            if not body["items"]:
                break
        time.sleep(0.1)
    jobs: dict[str, dict[str, Any]] = {}
    cursor = ""
    while True:
        _, body = server.ask("GET", f"{API}/jobs?limit=1000&cursor={cursor}")
        jobs.update((job["name"], job) for job in body["items"])
        cursor = body["next"]
        if not cursor:
            return jobs


def _count(kills: int, submitter: Submitter, jobs: dict[str, dict[str, Any]], ledger: Path, folder: Path) -> list[Row]:
    starts = Counter(line.rpartition(" ")[0] for line in ledger.read_text().splitlines() if line.endswith(" start"))
    done = ended(ledger)
    lost = [key for key, job in submitter.acknowledged.items() if key not in jobs or jobs[key]["id"] != job]
    unfinished = [job["id"] for job in jobs.values() if job["state"] != "succeeded" or job["id"] not in done]
    return [
        row("kills", kills, "times"),
        row("jobs acknowledged under fire", len(submitter.acknowledged), "jobs"),
        row("acknowledged jobs that were lost", len(lost), "jobs", 0),
        row("jobs taken twice", submitter.doubled + len(jobs) - len({job["id"] for job in jobs.values()}), "jobs", 0),
        row("attempts started twice", sum(count > 1 for count in starts.values()), "attempts", 0),
        row("jobs that needed more than one attempt", sum(job["attempts"] > 1 for job in jobs.values()), "jobs", 0),
        row("jobs that did not succeed", len(unfinished), "jobs", 0),
        row("processes of jobs left over", len(orphans(str(folder))), "processes", 0),
    ]


def ended(ledger: Path) -> set[str]:
    """The jobs that wrote that they have ended."""
    return {line.partition(" ")[0] for line in ledger.read_text().splitlines() if line.endswith(" end")}


def orphans(folder: str) -> list[int]:
    """Processes of jobs of a folder that still run, after some time to go."""
    deadline_s = time.monotonic() + 5
    while True:
        found = [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _belongs(pid, folder)]
        if not found or time.monotonic() > deadline_s:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return found
        time.sleep(0.1)


def _belongs(pid: int, folder: str) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return b"PHALANX_JOB_ID=" in variables and folder.encode() in variables
