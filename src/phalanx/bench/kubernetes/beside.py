"""Beside kube-scheduler: what a shadow of it reports, and what phalanx really does with the same arrivals."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from phalanx.bench.kubernetes.bindings import Bindings, watching
from phalanx.bench.kubernetes.contender import OURS, PLAIN, scheduling
from phalanx.bench.kubernetes.objects import GROUPS, PODS, clear, create, group, pod
from phalanx.bench.kubernetes.run import running
from phalanx.bench.row import Row, Tell, row
from phalanx.kube.api.client import Client
from phalanx.kube.shadow.history import history_of
from phalanx.kube.shadow.recorder import Recorder
from phalanx.kube.shadow.recording import FILE, entries_in
from phalanx.kube.shadow.report import Report, report_of

WEEK_S = 120.0
"""A synthetic week goes by in so long."""

GANGS, GANGS_QUICK = 120, 8
MACHINES, MACHINES_QUICK = 10, 5
REST_S = 60.0
POLICY = "phalanx"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gang that comes, and runs for so long once all its pods are bound."""

    name: str
    at_s: float
    pods: int
    gpus: int
    runs_s: float


def week(gangs: int, length_s: float, seed: int = 0) -> list[Arrival]:
    """Small and large gangs that come at random, fewer than make a cluster full for long."""
    draw = random.Random(seed)
    shapes = [(1, 1), (1, 4), (1, 8), (2, 8), (4, 8), (4, 4)]
    moments = sorted(draw.uniform(0, length_s) for _ in range(gangs))
    return [
        Arrival(f"w{i}", at_s, *draw.choice(shapes), draw.uniform(0.02, 0.08) * length_s)
        for i, at_s in enumerate(moments)
    ]


def play(api: Client, scheduler: str, arrivals: Sequence[Arrival], within_s: float) -> dict[str, float]:
    """Has gangs come and end, and says how long each waited for its last pod to be bound, in seconds. Those that are
    not bound in time are not in it.
    """
    waits: dict[str, float] = {}
    ends: dict[str, float] = {}
    came: dict[str, float] = {}
    left = {each.name: each for each in arrivals}
    began = time.monotonic()
    with watching(api) as bindings:
        while left and time.monotonic() - began < within_s:
            now = time.monotonic()
            for each in [each for each in left.values() if each.name not in came and each.at_s <= now - began]:
                if each.pods > 1:
                    create(api, GROUPS, [group(each.name, each.pods)])
                of = each.name if each.pods > 1 else ""
                create(api, PODS, (pod(name, each.gpus, scheduler, of) for name in _pods(each)))
                came[each.name] = time.monotonic()
            for each in [each for each in left.values() if each.name in came]:
                _follow(api, each, bindings, came, waits, ends)
                if ends.get(each.name, now + 1) <= now:
                    _end(api, each)
                    del left[each.name]
            time.sleep(0.01)
    return waits


def _pods(arrival: Arrival) -> list[str]:
    return [f"{arrival.name}-{i}" for i in range(arrival.pods)]


def _follow(
    api: Client,
    arrival: Arrival,
    bindings: Bindings,
    came: dict[str, float],
    waits: dict[str, float],
    ends: dict[str, float],
) -> None:
    names = _pods(arrival)
    if arrival.name in waits or not all(name in bindings.at_s for name in names):
        return
    bound = max(bindings.at_s[name] for name in names)
    waits[arrival.name] = max(bound - came[arrival.name], 0.0)
    ends[arrival.name] = bound + arrival.runs_s


def _end(api: Client, arrival: Arrival) -> None:
    for name in _pods(arrival):
        api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})


@contextmanager
def recording(client: Client, folder: Path) -> Iterator[None]:
    """A shadow that records meanwhile."""
    ready = threading.Event()
    said: list[str] = []
    with (folder / FILE).open("ab") as file:
        recorder = Recorder(client, file, said.append)
        thread = threading.Thread(target=recorder.run, args=(3600.0, ready.set), name="shadow")
        thread.start()
        try:
            if not ready.wait(60):
                raise RuntimeError(f"the shadow recorded nothing: {said}")
            yield
        finally:
            recorder.stop()
            thread.join()


def predicted(report: Report) -> dict[str, float]:
    """What the report says that each gang would have waited under phalanx, by its name."""
    found = {}
    for gang in report.gangs:
        if gang.ours_ms is not None:
            name = gang.job.partition("@")[0].rpartition("/")[2]
            found[name if gang.pods > 1 else name.rpartition("-")[0]] = gang.ours_ms / 1000
    return found


def shadow(is_quick: bool, tell: Tell) -> list[Row]:
    """A week of arrivals under kube-scheduler with a shadow beside it, and the same again under phalanx."""
    machines, count = (MACHINES_QUICK, GANGS_QUICK) if is_quick else (MACHINES, GANGS)
    length_s = WEEK_S * count / GANGS
    arrivals = week(count, length_s)
    within_s = length_s + REST_S
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-shadow-") as folder, running(machines) as (plane, api):
        tell(f"shadow: {count} gangs on {machines} nodes in {length_s:g} s: {PLAIN.title}")
        with recording(api, Path(folder)), scheduling(plane, PLAIN):
            theirs = play(api, PLAIN.scheduler, arrivals, within_s)
        report = report_of(history_of(entries_in(Path(folder))), POLICY)
        clear(api, PODS, GROUPS)
        tell("shadow: the same under phalanx")
        with scheduling(plane, OURS):
            ours = play(api, OURS.scheduler, arrivals, within_s)
    return _rows(f"shadow: {count} gangs on {machines} nodes", theirs, predicted(report), ours)


def _rows(what: str, theirs: dict[str, float], said: dict[str, float], ours: dict[str, float]) -> list[Row]:
    both = [name for name in said if name in theirs and name in ours]
    off = sorted(abs(said[name] - ours[name]) for name in both)
    return [
        row(f"{what}, started under kube-scheduler", len(theirs), "gangs"),
        row(f"{what}, started under phalanx", len(ours), "gangs"),
        row(f"{what}, mean wait under kube-scheduler", _mean(theirs, both), "s"),
        row(f"{what}, mean wait under phalanx, as the shadow reports", _mean(said, both), "s"),
        row(f"{what}, mean wait under phalanx, as it is then", _mean(ours, both), "s"),
        row(f"{what}, difference of these for a gang, p50", off[len(off) // 2] if off else None, "s", 0.5),
        row(f"{what}, the same, at most", off[-1] if off else None, "s"),
    ]


def _mean(waits: dict[str, float], names: list[str]) -> float | None:
    return fmean(waits[name] for name in names) if names else None
