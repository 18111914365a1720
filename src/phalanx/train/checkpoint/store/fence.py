"""Which trainer may write to a checkpoint directory: one at a time, the last one that claimed it.

Each claim is a file of its own, `.fence/TERM-TOKEN.json`, and terms only grow. A trainer whose term is no longer the
highest is fenced out: it finds that out before it writes and again before it commits. Nothing more is asked of the
store than that a listing shows what was written before it, so this holds on object stores too.
"""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec

from phalanx.train.checkpoint.store.errors import DirectoryInUse, FencedOut, StoreUnreachable
from phalanx.train.checkpoint.store.layout import FENCE
from phalanx.train.checkpoint.store.manifest import seal, unseal
from phalanx.train.checkpoint.store.media.medium import Medium, Root, open_medium

CLAIM_ATTEMPTS = 20


class Owner(msgspec.Struct, frozen=True):
    """The trainer behind a claim."""

    job: str
    host: str
    pid: int
    started_ticks: int
    pid_space: str
    renewed_at: float
    ttl_s: float
    released: bool = False

    @property
    def words(self) -> str:
        return f"job {self.job or '(unnamed)'} on {self.host}, process {self.pid}"


class Claim(msgspec.Struct, frozen=True):
    """A claim as its file's name tells it."""

    term: int
    token: str

    @property
    def name(self) -> str:
        return f"{self.term:08d}-{self.token}.json"


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write to `medium` in `term`, until another trainer claims it. Can be sent to other processes."""

    medium: Medium
    term: int
    token: str
    job: str
    ttl_s: float

    def check(self) -> None:
        """FencedOut where another trainer has claimed the directory since."""
        refuse_if_fenced(self.medium, self.term)

    def renew(self) -> None:
        """Says that this trainer lives; to be called at least every half `ttl_s` while it does."""
        self.check()
        self._write(released=False)

    def release(self) -> None:
        """Says that this trainer writes no more, so that another job need not wait."""
        self._write(released=True)

    def _write(self, released: bool) -> None:
        write_claim(self.medium, Claim(self.term, self.token), this_process(self.job, self.ttl_s, released))


def claim(root: Root, job: str = "", *, ttl_s: float = 60.0) -> Fence:
    """Takes the directory for this trainer: one call for all its ranks, which then write with `term=fence.term`.

    A predecessor of the same job, one that is dead or one that has not renewed for its `ttl_s` is fenced out. Another
    job that is alive keeps the directory, and DirectoryInUse names it.
    """
    medium = open_medium(root)
    for _ in range(CLAIM_ATTEMPTS):
        before = claims(medium)
        if before:
            refuse_if_alive(medium, before[-1], job)
        mine = Claim((before[-1].term if before else 0) + 1, uuid.uuid4().hex[:12])
        write_claim(medium, mine, this_process(job, ttl_s, released=False))
        rivals = [each for each in claims(medium) if each.term >= mine.term and each != mine]
        if not rivals:
            for each in before:
                medium.child(FENCE).remove(each.name)
            return Fence(medium, mine.term, mine.token, job, ttl_s)
        medium.child(FENCE).remove(mine.name)
        # Two trainers that claim at the same moment see each other; the one that waits less comes first.
        time.sleep(random.uniform(0.01, 0.2))
    raise StoreUnreachable(f"{medium.url}: others kept claiming it at the same moment, {CLAIM_ATTEMPTS} times over")


def refuse_if_fenced(medium: Medium, term: int) -> None:
    known = claims(medium)
    if known and known[-1].term > term:
        owner = read_owner(medium, known[-1])
        by = owner.words if owner else "another trainer"
        raise FencedOut(
            f"{medium.url}: {by} has claimed it with term {known[-1].term}, ours is {term}; "
            "nothing was written. Stop one of the two, or give each a directory of its own"
        )


def refuse_if_alive(medium: Medium, last: Claim, job: str) -> None:
    owner = read_owner(medium, last)
    if owner is None or owner.released or (job and owner.job == job) or not seems_alive(owner):
        return
    raise DirectoryInUse(
        f"{medium.url}: {owner.words} writes here and was alive {max(0.0, time.time() - owner.renewed_at):.0f} s ago; "
        "choose another directory, or stop that job first"
    )


def claims(medium: Medium) -> list[Claim]:
    """All claims, the one that counts last."""
    found = []
    for name in medium.child(FENCE).names():
        term, dash, token = name.removesuffix(".json").partition("-")
        if dash and term.isdigit() and name.endswith(".json"):
            found.append(Claim(int(term), token))
    return sorted(found, key=lambda each: (each.term, each.token))


def read_owner(medium: Medium, which: Claim) -> Owner | None:
    """The owner of a claim; None where the file has gone or cannot be read, which only costs the name."""
    try:
        return unseal(medium.child(FENCE).read(which.name), Owner)
    except (FileNotFoundError, ValueError):
        return None


def write_claim(medium: Medium, which: Claim, owner: Owner) -> None:
    content = seal(owner)
    medium.child(FENCE).write(which.name, lambda file: file.write(content))


def this_process(job: str, ttl_s: float, released: bool) -> Owner:
    pid = os.getpid()
    host = socket.gethostname()
    return Owner(job, host, pid, started_ticks(pid), pid_space(), time.time(), ttl_s, released)


def seems_alive(owner: Owner) -> bool:
    """Not if the process table says that it is gone, where it is the same table; else by its last sign of life."""
    if owner.pid_space and owner.pid_space == pid_space() and started_ticks(owner.pid) != owner.started_ticks:
        return False
    return time.time() - owner.renewed_at < owner.ttl_s


def pid_space() -> str:
    """Names the process table that our process numbers belong to: containers of one host have different ones."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def started_ticks(pid: int) -> int:
    """When a process started, so that a number used again is not taken for the same process; 0 if it has ended."""
    try:
        # Field 2, the name, may hold spaces and brackets: fields count from the last bracket. 3: state, 22: start.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return 0 if fields[0] in "ZX" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
