"""The fence: which leaders may still ask for something, and which attempts may run. Kept on disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from phalanx.errors import PhalanxError
from phalanx.protocol.action import ActionId


class InUse(PhalanxError):  # noqa: N818
    """Another server works in the same folder."""


class Fence:
    """Refuses what is out of date, and knows what may be running."""

    def __init__(self, data: Path) -> None:
        self._jobs = data / "jobs"
        self._folder = data / "backend"
        self._live = self._folder / "live"
        self._live.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InUse(
                f"{data}: another phalanx runs jobs from this folder; stop it, or give --data another"
            ) from None
        self._term = self._read_term()

    def close(self) -> None:
        """Lets another server work here."""
        os.close(self._lock)

    def refuses(self, action: ActionId) -> str:
        """Why an action is out of date; empty if it is not."""
        if action.term < self._term:
            return f"term {action.term} is over: term {self._term} has begun"
        if action.term > self._term:
            self._write_term(action.term)
        return self.outdated(action)

    def outdated(self, action: ActionId) -> str:
        """Why an action of a leader that is known to be the present one is out of date; empty if it is not."""
        newest = self._newest_attempt(action.job)
        if action.attempt < newest:
            return f"attempt {action.attempt} is over: attempt {newest} has begun"
        return ""

    def mark(self, job: str, attempt: int) -> None:
        """Puts down that an attempt may be running from now on."""
        (self._live / f"{job}@{attempt}").touch()

    def unmark(self, job: str, attempt: int) -> None:
        """Puts down that it has ended."""
        (self._live / f"{job}@{attempt}").unlink(missing_ok=True)

    def marked(self) -> Iterator[tuple[str, int]]:
        """Attempts that may be running."""
        for name in sorted(os.listdir(self._live)):
            job, _, attempt = name.rpartition("@")
            yield job, int(attempt)

    def _newest_attempt(self, job: str) -> int:
        try:
            names = os.listdir(self._jobs / job)
        except FileNotFoundError:
            return 0
        return max((int(name) for name in names if name.isdigit()), default=0)

    def _read_term(self) -> int:
        try:
            return int((self._folder / "term").read_text())
        except FileNotFoundError:
            return 0

    def _write_term(self, term: int) -> None:
        self._term = term
        draft = self._folder / "term.new"
        draft.write_text(str(term))
        os.replace(draft, self._folder / "term")
