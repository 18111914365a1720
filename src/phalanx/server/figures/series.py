"""Series on disk: figures over time, finer for the last hour and coarser for the days before, in a file of their own.

One process writes, any may read. Nothing else depends on the file: one that cannot be read is begun anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

FILE = "series.db"
STEP_MS = 10_000
TIERS: dict[str, tuple[tuple[int, int], ...]] = {
    "cluster": ((STEP_MS, 360), (120_000, 720), (1_800_000, 1_488)),
    "queue": ((STEP_MS, 360), (120_000, 720), (1_800_000, 1_488)),
    "node": ((300_000, 288),),
}
"""By kind of scope: the steps in which figures are kept, and how many of each. What is older is dropped."""

JOB_POINTS_MAX = 400
"""Points of a job. When there are more its step is doubled, so that all of its life is kept."""

JOBS_MAX = 2_000
"""Jobs of which series are kept; of those that have ended the ones that ended first go first."""

NODES_MAX = 5_000

TABLES = """
CREATE TABLE IF NOT EXISTS points (
    scope TEXT NOT NULL, step_ms INTEGER NOT NULL, at_ms INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (scope, step_ms, at_ms)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS jobs (scope TEXT PRIMARY KEY, step_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL);
"""
PUT = "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)"
_values = msgspec.msgpack.Decoder(dict[str, float])


class Point(NamedTuple):
    """Figures at a moment: means over the step that begins there."""

    at_ms: int
    values: dict[str, float]


class Mean:
    """Means of figures over the step of a time that is under way."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: dict[str, float]) -> None:
        """Takes figures in."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def values(self) -> dict[str, float]:
        """The means."""
        return {name: total / self._counts[name] for name, total in self._sums.items()}


class SeriesWriter:
    """The one writer. Means of a step are written when it is over; a crash loses those under way."""

    def __init__(self, path: Path) -> None:
        self._file = _opened(path)
        self._means: dict[tuple[str, int], Mean] = {}
        self._steps: dict[str, int] = dict(self._file.execute("SELECT scope, step_ms FROM jobs"))
        self._known_nodes: dict[str, None] = {}

    def add(self, samples: Iterable[tuple[str, dict[str, float]]], now_ms: int) -> None:
        """Takes samples of the cluster, of queues and of nodes in."""
        done: list[tuple[str, int, int, bytes]] = []
        for scope, values in samples:
            kind = scope.partition(":")[0]
            if kind == "node" and scope not in self._known_nodes:
                if len(self._known_nodes) >= NODES_MAX:
                    continue
                self._known_nodes[scope] = None
            for step_ms, _ in TIERS[kind]:
                done += self._finished(scope, step_ms, values, now_ms)
        done += self._left_behind(now_ms)
        with self._file:
            self._file.executemany(PUT, done)
            self._drop_old(done, now_ms)

    def add_jobs(self, samples: Iterable[tuple[str, dict[str, float]]], now_ms: int) -> None:
        """Takes samples of jobs that run in, as many as there is room for."""
        running = dict(samples)
        room = JOBS_MAX - len(self._steps)
        fresh = [scope for scope in running if scope not in self._steps]
        with self._file:
            if len(fresh) > room:
                self._forget_ended(running, len(fresh) - room)
            for scope in fresh[: max(JOBS_MAX - len(self._steps), 0)]:
                self._steps[scope] = STEP_MS
            done = [
                point
                for scope, values in running.items()
                if scope in self._steps
                for point in self._finished(scope, self._steps[scope], values, now_ms)
            ]
            self._file.executemany(PUT, done)
            seen = [(scope, self._steps[scope], now_ms) for scope in running if scope in self._steps]
            self._file.executemany("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)", seen)
            for scope in dict.fromkeys(point[0] for point in done):
                self._thin_out(scope)

    def finish_jobs(self, running: set[str]) -> None:
        """Writes what is under way of jobs that run no more."""
        over = [key for key in self._means if key[0].startswith("job:") and key[0] not in running]
        rows = [(*key, mean.at_ms, _encoded(mean)) for key in over if (mean := self._means.pop(key))]
        with self._file:
            self._file.executemany(PUT, rows)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _finished(
        self, scope: str, step_ms: int, values: dict[str, float], now_ms: int
    ) -> list[tuple[str, int, int, bytes]]:
        """The point that is complete since these values belong to another."""
        at_ms = now_ms - now_ms % step_ms
        mean, done = self._means.get((scope, step_ms)), []
        if mean is None or mean.at_ms != at_ms:
            if mean is not None:
                done.append((scope, step_ms, mean.at_ms, _encoded(mean)))
            mean = self._means[scope, step_ms] = Mean(at_ms)
        mean.add(values)
        return done

    def _left_behind(self, now_ms: int) -> list[tuple[str, int, int, bytes]]:
        """Points of what there is no more, such as a queue without jobs, whose step is over."""
        over = [
            key for key, mean in self._means.items() if mean.at_ms + key[1] <= now_ms and not key[0].startswith("job:")
        ]
        return [(*key, mean.at_ms, _encoded(mean)) for key in over if (mean := self._means.pop(key))]

    def _drop_old(self, done: list[tuple[str, int, int, bytes]], now_ms: int) -> None:
        """Each scope that got a point drops those that are too old; what no longer is dwindles in time."""
        limits = {(kind, step_ms): step_ms * count for kind, tiers in TIERS.items() for step_ms, count in tiers}
        old = [(scope, step_ms, now_ms - limits[scope.partition(":")[0], step_ms]) for scope, step_ms, _, _ in done]
        self._file.executemany("DELETE FROM points WHERE scope = ? AND step_ms = ? AND at_ms < ?", old)
        if any(step_ms == TIERS["cluster"][-1][0] for _, step_ms, _, _ in done):
            oldest_ms = now_ms - max(limits.values())
            self._file.execute("DELETE FROM points WHERE scope NOT LIKE 'job:%' AND at_ms < ?", (oldest_ms,))
            self._drop_gone_nodes(now_ms)

    def _drop_gone_nodes(self, now_ms: int) -> None:
        step_ms, count = TIERS["node"][0]
        self._file.execute("DELETE FROM points WHERE scope LIKE 'node:%' AND at_ms < ?", (now_ms - step_ms * count,))

    def _forget_ended(self, running: dict[str, dict[str, float]], count: int) -> None:
        rows = self._file.execute("SELECT scope FROM jobs ORDER BY last_ms")
        ended = [scope for (scope,) in rows if scope not in running][:count]
        for scope in ended:
            self._steps.pop(scope, None)
        self._file.executemany("DELETE FROM points WHERE scope = ?", [(scope,) for scope in ended])
        self._file.executemany("DELETE FROM jobs WHERE scope = ?", [(scope,) for scope in ended])

    def _thin_out(self, scope: str) -> None:
        """Doubles the step of a job that has too many points, and halves their number."""
        (count,) = self._file.execute("SELECT count(*) FROM points WHERE scope = ?", (scope,)).fetchone()
        if count <= JOB_POINTS_MAX:
            return
        wider_ms = 2 * self._steps[scope]
        merged: dict[int, Mean] = {}
        for at_ms, content in self._file.execute("SELECT at_ms, content FROM points WHERE scope = ?", (scope,)):
            start_ms = at_ms - at_ms % wider_ms
            merged.setdefault(start_ms, Mean(start_ms)).add(_values.decode(content))
        under_way = self._means.pop((scope, self._steps[scope]), None)
        if under_way is not None:
            start_ms = under_way.at_ms - under_way.at_ms % wider_ms
            mean = self._means[scope, wider_ms] = merged.pop(start_ms, Mean(start_ms))
            mean.add(under_way.values())
        self._steps[scope] = wider_ms
        self._file.execute("DELETE FROM points WHERE scope = ?", (scope,))
        self._file.executemany(PUT, [(scope, wider_ms, mean.at_ms, _encoded(mean)) for mean in merged.values()])
        self._file.execute("UPDATE jobs SET step_ms = ? WHERE scope = ?", (wider_ms, scope))


def read_points(path: Path, scope: str, since_ms: int, until_ms: int) -> tuple[int, list[Point]]:
    """The step and the points of a scope between two moments, from the finest step that goes back far enough."""
    with suppress(sqlite3.Error), closing(_reader(path)) as file:
        steps = file.execute(
            "SELECT step_ms, min(at_ms) FROM points WHERE scope = ? GROUP BY step_ms", (scope,)
        ).fetchall()
        if not steps:
            return STEP_MS, []
        step_ms = _chosen(steps, since_ms)
        rows = file.execute(
            "SELECT at_ms, content FROM points"
            " WHERE scope = ? AND step_ms = ? AND at_ms > ? AND at_ms < ? ORDER BY at_ms",
            (scope, step_ms, since_ms - step_ms, until_ms),
        ).fetchall()
        return step_ms, [Point(at_ms, _values.decode(content)) for at_ms, content in rows]
    return STEP_MS, []


def first_ms(path: Path, scope: str) -> int | None:
    """The first moment of a scope of which anything is known."""
    with suppress(sqlite3.Error), closing(_reader(path)) as file:
        (found,) = file.execute("SELECT min(at_ms) FROM points WHERE scope = ?", (scope,)).fetchone()
        return None if found is None else int(found)
    return None


def _chosen(steps: list[tuple[int, int]], since_ms: int) -> int:
    """The finest step whose points go back to a moment, or as far back as those of any coarser step.

    A coarse point begins at a multiple of its step, which may be before anything was known: it goes back further
    than a finer one only if it is over when that one begins.
    """
    tiers = sorted(steps)
    for place, (step_ms, oldest_ms) in enumerate(tiers):
        coarser = tiers[place + 1 :]
        if oldest_ms <= since_ms + step_ms or all(oldest_ms < first_ms + each_ms for each_ms, first_ms in coarser):
            return step_ms
    raise AssertionError("no step is coarser than the last")


def _encoded(mean: Mean) -> bytes:
    return msgspec.msgpack.encode(mean.values())


def _reader(path: Path) -> sqlite3.Connection:
    """The file to read from; one that is not there is not made."""
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2)


def _opened(path: Path) -> sqlite3.Connection:
    try:
        return _open(path)
    except sqlite3.OperationalError:
        # It is locked, or the disk is full: there is nothing wrong with what is in it.
        raise
    except sqlite3.DatabaseError:
        for each in path.parent.glob(f"{path.name}*"):
            each.unlink(missing_ok=True)
        return _open(path)


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=5)
    try:
        path.chmod(0o600)
        # A crash of the machine may cost the last minutes of figures, never a wait of the scheduler.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "journal_size_limit=4194304"):
            file.execute(f"PRAGMA {pragma}")
        file.executescript(TABLES)
    except sqlite3.DatabaseError:
        file.close()
        raise
    return file
