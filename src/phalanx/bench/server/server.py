"""How fast the server is: submissions, pages of lists, reads beside a long decision, and restarts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from phalanx.bench.row import Row, Tell, quantile, row
from phalanx.bench.server.live import API, Client, LiveServer

SINGLE_TARGET_MS = 2.0
BATCH_TARGET_MS = 0.2
PAGE_TARGET_MS = 50.0
BESIDE_TARGET_MS = 100.0
DECISION_S = 2.0
READY_TARGET_S = 5.0
CLIENTS = 32

FILTERS = (
    "",
    "state=waiting",
    "state=succeeded",
    "state=running",
    "queue=team-7",
    "queue=research",
    "user=nobody",
    "name=job-77",
    "kind=service",
    "label=shard=7",
    "state=waiting&queue=team-3",
    "order=oldest&state=failed",
    "state=waiting&user=admin&order=oldest",
    "state=waiting,running&queue=team-3&kind=training",
    "state=succeeded&queue=team-3&user=admin",
    "state=waiting&label=shard=7",
    "user=admin&array_of=1",
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    singles: int
    batches: int
    batch: int
    finished: int
    running: int
    waiting: int
    pages: int


FULL = Size(singles=6_000, batches=60, batch=500, finished=79_000, running=1_000, waiting=20_000, pages=40)
QUICK = Size(singles=64, batches=2, batch=50, finished=100, running=50, waiting=50, pages=2)


@contextmanager
def rehearsal(nodes: int, *options: str) -> Iterator[LiveServer]:
    """A server whose jobs run nothing."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        server = LiveServer(
            Path(folder), "--backend", "rehearsal", "--nodes", str(nodes), "--gpus", "8", "--policy", "fifo", *options
        )
        server.start()
        try:
            yield server
        finally:
            server.stop()


def rates(size: Size, tell: Tell) -> list[Row]:
    """Submissions of 32 keep-alive clients, each acknowledged when it is on the disk, while jobs start and end."""
    with rehearsal(125, "--workers", "2") as server:
        tell(f"server: {size.singles} single submissions")
        took, latencies = asyncio.run(_submit(server, size.singles, _single(server)))
        rows = [
            row(f"single submission, {CLIENTS} clients", 1000 * took / size.singles, "ms a job", SINGLE_TARGET_MS),
            row("single submissions a second", size.singles / took, "jobs/s"),
            row("latency of a single submission, p50", _ms(quantile(latencies, 0.5)), "ms"),
            row("latency of a single submission, p99", _ms(quantile(latencies, 0.99)), "ms"),
        ]
        jobs = size.batches * size.batch
        tell(f"server: {jobs} jobs in batches of {size.batch}")
        loop, used_s = server.pids()["loop"], cpu_s(server.pids()["loop"])
        took, latencies = asyncio.run(_submit(server, size.batches, _batch(server, size.batch)))
        return [
            *rows,
            row(f"jobs by batches of {size.batch}, {CLIENTS} clients", 1000 * took / jobs, "ms a job", BATCH_TARGET_MS),
            row("jobs by batches a second", jobs / took, "jobs/s"),
            row("processor time of the loop, by batches", 1000 * (cpu_s(loop) - used_s) / jobs, "ms a job"),
            row(f"latency of a batch of {size.batch}, p99", _ms(quantile(latencies, 0.99)), "ms"),
        ]


def pages(size: Size, tell: Tell) -> list[Row]:
    """Pages of 100 among many jobs with any filter, and a restart after `kill -9` with all of them."""
    with rehearsal(125) as server:
        fill(server, size, tell)
        tell(f"server: {size.pages} pages for each of {len(FILTERS)} filters")
        worst = {query: asyncio.run(_read_pages(server, query, size.pages)) for query in FILTERS}
        slowest = max(worst, key=lambda query: worst[query])
        jobs = size.finished + size.running + size.waiting
        rows = [
            row(
                f"page of 100 among {jobs} jobs, worst filter ({slowest or 'none'}), p99",
                worst[slowest],
                "ms",
                PAGE_TARGET_MS,
            ),
            row("page of 100, median filter, p99", quantile(list(worst.values()), 0.5), "ms"),
        ]
        tell("server: kill -9 of everything, and ready again")
        server.kill("up")
        ready_s = server.start()
        rows.append(row(f"kill -9 of all with {jobs} jobs to ready", ready_s, "s", READY_TARGET_S))
        rows.extend(
            row(f"processor time of the {part} until then", cpu_s(pid), "s")
            for part, pid in server.pids().items()
            if part in ("up", "loop", "api")
        )
        server.kill("loop")
        _until(server, lambda: server.ask("GET", "/readyz")[0] != 200)
        rows.append(row(f"kill -9 of the loop with {jobs} jobs to ready", server.until_ready(), "s", READY_TARGET_S))
        rows.append(row("processor time of the loop until then", cpu_s(server.pids()["loop"]), "s"))
        return rows


def beside(size: Size, tell: Tell) -> list[Row]:
    """Reads while the loop does nothing but decide: it is held still for two seconds, as by a long decision."""
    with rehearsal(125) as server:
        _post(server, 1_000, lambda n: {"duration": "100h", "name": f"job-{n}"})
        tell("server: reads beside a decision of 2 s")
        loop = server.pids()["loop"]
        os.kill(loop, signal.SIGSTOP)
        try:
            times = asyncio.run(_read_for(server, DECISION_S))
        finally:
            os.kill(loop, signal.SIGCONT)
        return [
            row("GET /jobs beside a decision of 2 s, p99", _ms(quantile(times, 0.99)), "ms", BESIDE_TARGET_MS),
            row("GET /jobs beside a decision of 2 s, p50", _ms(quantile(times, 0.5)), "ms"),
        ]


async def _read_for(server: LiveServer, seconds: float) -> list[float]:
    client = Client(server)
    times: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        began_s = time.perf_counter()
        await client.ask(server.request("GET", "/jobs?limit=100"))
        times.append(time.perf_counter() - began_s)
    client.close()
    return times


def fill(server: LiveServer, size: Size, tell: Tell) -> None:
    """Has a server hold jobs that are over, that run and that wait."""
    server.add_queues("research/llm", *(f"team-{number}" for number in range(10)))
    tell(f"server: {size.finished} jobs that end at once")
    _post(server, size.finished, lambda n: {"duration": "1ms", "name": f"job-{n}", "queue": f"team-{n % 10}"})
    _until(server, lambda: not _total(server, "waiting,starting,running,stopping"))
    tell(f"server: {size.running} that run and {size.waiting} that wait")
    _post(
        server, size.running, lambda n: {"duration": "100h", "queue": "research/llm", "labels": {"shard": str(n % 50)}}
    )
    _until(server, lambda: not _total(server, "waiting,starting"))
    _post(server, size.waiting, lambda n: {"gang": [{"replicas": 125, "gpus": 8}], "queue": f"team-{n % 10}"})


def _post(server: LiveServer, count: int, job: Callable[[int], dict[str, object]]) -> None:
    for first in range(0, count, 1_000):
        jobs = []
        for number in range(first, min(first + 1_000, count)):
            made = job(number)
            jobs.append({"command": "true", **({} if "gang" in made else {"gpus": 1}), **made})
        status, body = server.ask("POST", f"{API}/jobs:batch", {"jobs": jobs})
        if status != 201:
            raise RuntimeError(f"a batch was refused: {body}")


def _total(server: LiveServer, states: str) -> int:
    return len(server.ask("GET", f"{API}/jobs?limit=1&state={states}")[1]["items"])


def _until(server: LiveServer, reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 300
    while not reached():
        if time.monotonic() > deadline_s:
            raise RuntimeError("jobs did not get where they should")
        time.sleep(0.1)


def _single(server: LiveServer) -> Callable[[int], bytes]:
    def request(number: int) -> bytes:
        job = {"name": f"job-{number}", "gpus": 1, "command": ["python", "train.py"], "duration": "10s"}
        return server.request("POST", "/jobs", json.dumps(job).encode())

    return request


def _batch(server: LiveServer, size: int) -> Callable[[int], bytes]:
    def request(number: int) -> bytes:
        jobs = [
            {"name": f"job-{number}-{i}", "gpus": 1, "command": ["python", "train.py"], "duration": "10s"}
            for i in range(size)
        ]
        return server.request("POST", "/jobs:batch", json.dumps({"jobs": jobs}).encode())

    return request


async def _submit(server: LiveServer, count: int, request: Callable[[int], bytes]) -> tuple[float, list[float]]:
    """Has clients send requests one after another each; seconds in all, and of each."""
    requests = [request(number) for number in range(count)]
    left = iter(requests)
    latencies: list[float] = []

    async def work() -> None:
        client = Client(server)
        for content in left:
            began_s = time.perf_counter()
            status, body = await client.ask(content)
            if status != 201:
                raise RuntimeError(f"refused with {status}: {body[:200]!r}")
            latencies.append(time.perf_counter() - began_s)
        client.close()

    began_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(CLIENTS)))
    return time.perf_counter() - began_s, latencies


async def _read_pages(server: LiveServer, query: str, count: int) -> float:
    """The p99 of reading one page after another, in milliseconds."""
    client = Client(server)
    cursor, times = "", []
    for _ in range(count):
        path = f"/jobs?limit=100&{query}" + (f"&cursor={cursor}" if cursor else "")
        began_s = time.perf_counter()
        status, body = await client.ask(server.request("GET", path))
        times.append(time.perf_counter() - began_s)
        if status != 200:
            raise RuntimeError(f"{path}: refused with {status}")
        cursor = json.loads(body)["next"] or ""
    client.close()
    return _ms(quantile(times, 0.99)) or 0.0


def cpu_s(pid: int) -> float:
    """The processor time of a process so far: what a machine that others use as well does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
