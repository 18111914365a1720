"""How soon any moment of a long journal is there, and how evenly the timeline follows with all of its bars in sight.

The journal is that of a simulated run with many failures, and with reports of its jobs in between as live jobs send
them; it is opened as a user opens it: by `phalanx view`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.pan import drag, frames, zoom
from phalanx.bench.page.tree import cpu_with_ended_s
from phalanx.bench.page.views import usable_s
from phalanx.bench.row import Row, Tell, quantile, row

USABLE_TARGET_S = 2.0
SEED = 1
PATIENCE_S = 7_200.0
MONTH_MS = 62 * 86_400_000
CLUSTER = """version: 1
name: bench
nodes:
  - {{count: {nodes}, gpus: 8, gpu_type: H100, cpus: 96, memory_gb: 1024, rack: {{nodes: 16}}, pod: {{nodes: 128}}}}
policy: fifo:skip=true
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Nodes and jobs of a simulated run, and how much more often than on Meta's RSC-1 nodes fail: every failure and
    every attempt that it interrupts makes records. Reports of jobs make up what is missing of the `records`.
    """

    nodes: int
    jobs: int
    failures: int
    records: int


def past(run: Run, times: int, pan_s: float, tell: Tell) -> list[Row]:
    """Moments of the journal in the page, each looked at for the first time, and the timeline."""
    with tempfile.TemporaryDirectory(prefix="phalanx-bench-") as folder:
        tell(f"page: the journal of a simulated run of {run.jobs} jobs on {run.nodes} nodes")
        journal = reported(simulated(run, Path(folder)), run.records)
        return shown(journal, Path(folder), times, pan_s, tell)


def shown(journal: Path, folder: Path, times: int, pan_s: float, tell: Tell) -> list[Row]:
    """The same of a journal that is there."""
    with journal.open("rb") as file:
        records = sum(1 for _ in file)
    tell(f"page: {records} records are opened")
    begun_s = time.monotonic()
    with _viewer(journal, folder) as (address, pid):
        opened_s = time.monotonic() - begun_s
        browser = Browser(folder / "profile")
        try:
            return [
                row("past: records of the journal", records, "records"),
                row("past: the journal is open after", opened_s, "s"),
                *_moments(browser, address, pid, times, tell),
                *_timeline(browser, address, pan_s, tell),
            ]
        finally:
            browser.close()


def simulated(run: Run, folder: Path) -> Path:
    """The journal of a simulated run."""
    cluster, journal = folder / "cluster.yaml", folder / "journal.jsonl"
    cluster.write_text(CLUSTER.format(nodes=run.nodes))
    command = [sys.executable, "-m", "phalanx", "simulate", "--cluster", str(cluster), "--journal", str(journal)]
    trace = ["--trace", f"synthetic:shape=llm,jobs={run.jobs},load=1.0", "--faults", f"rsc-1:scale={run.failures}"]
    subprocess.run([*command, *trace, "--checkpoint-every", "30m"], check=True, stdout=subprocess.DEVNULL)
    return journal


def reported(journal: Path, records: int) -> Path:
    """The same journal with reports of running jobs in between, each in its turn, evenly over so many records."""
    with journal.open("rb") as file:
        given = sum(1 for _ in file)
    share = max(0, records - given) / given
    wanted, seq = 0.0, 0
    running: dict[tuple[str, int], int] = {}
    path = journal.with_suffix(".reported")
    with journal.open() as file, path.open("w") as out:
        for line in file:
            out.write(_numbered(line, seq))
            seq, wanted = seq + 1, wanted + share
            _follow(line, running)
            while running and wanted >= 1:
                attempt = next(iter(running))
                step = running[attempt] = running.pop(attempt) + 1
                out.write(_numbered(_report(line, attempt, step), seq))
                seq, wanted = seq + 1, wanted - 1
    return path


def _numbered(line: str, seq: int) -> str:
    return f'{{"seq":{seq},{line.partition(",")[2]}'


def _report(line: str, attempt: tuple[str, int], step: int) -> str:
    """What an attempt says of itself at the moment of a record."""
    now = line.partition('"now":')[2].partition(",")[0]
    body = {
        "type": "Progress",
        "job": attempt[0],
        "attempt": attempt[1],
        "step": step,
        "durable_step": step - step % 10,
    }
    return f'{{"seq":0,"now":{now},"body":{json.dumps(body, separators=(",", ":"))},"version":1}}\n'


def _follow(line: str, running: dict[tuple[str, int], int]) -> None:
    """Attempts run from the answer to their start, which is their first action, to the next one or their end."""
    if '"type":"Done"' in line[:80]:
        _, job, attempt, number = json.loads(line)["body"]["action"]
        running.pop((job, attempt), None)
        if number == 0:
            running[job, attempt] = 0
    elif '"type":"AttemptEnded"' in line[:80]:
        body = json.loads(line)["body"]
        running.pop((body["job"], body["attempt"]), None)


@contextmanager
def _viewer(journal: Path, folder: Path) -> Iterator[tuple[str, int]]:
    """`phalanx view` of a journal: the address that lets a browser in, and its process."""
    ready = folder / "address"
    command = [sys.executable, "-m", "phalanx", "view", str(journal), "--ready-file", str(ready)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"{journal} was not opened within {PATIENCE_S:g} s")
            time.sleep(0.1)
        yield ready.read_text().strip(), process.pid
    finally:
        process.terminate()
        process.wait()


def _moments(browser: Browser, address: str, pid: int, times: int, tell: Tell) -> list[Row]:
    """Random moments: the first view of each, and then others of the same moment."""
    tell(f"page: {times} moments of the past")
    tab = browser.page()
    tab.open(address)
    tab.see("not live")
    span = tab.run("fetch('/api/v1/past').then((answer) => answer.json())")
    tab.close()
    rng = Random(SEED)
    took_s: dict[str, list[float]] = {"overview": [], "jobs": [], "timeline": []}
    used_s = []
    for _ in range(times):
        at_ms = rng.randrange(span["first_ms"], span["last_ms"])
        before_s = cpu_with_ended_s(pid)
        for view, found in took_s.items():
            tab = browser.page()
            found.append(usable_s(tab, f"{_site(address)}/ui/{view}?at={at_ms}"))
            tab.close()
            if view == "overview":
                used_s.append(cpu_with_ended_s(pid) - before_s)
    rows = [row("past: the first view of a moment, processor time of the server", quantile(used_s, 0.5), "s")]
    for view, found in took_s.items():
        what = "the first view of a moment" if view == "overview" else f"{view} of a moment that is open"
        rows += [
            row(f"past: {what}, usable after, median of {times}", quantile(found, 0.5), "s"),
            row(f"past: {what}, usable after, longest", max(found), "s", USABLE_TARGET_S),
        ]
    return rows


def _timeline(browser: Browser, address: str, seconds: float, tell: Tell) -> list[Row]:
    """The timeline with as many bars as it ever has, dragged and zoomed."""
    tell(f"page: the timeline is dragged and zoomed, each for {seconds:g} s")
    tab = browser.page()
    tab.call("Performance.enable")
    opened_s = usable_s(tab, f"{_site(address)}/ui/timeline?span={MONTH_MS}")
    tab.see("attempts read")
    bars = int(tab.run("document.querySelector('main [role=status]').innerText.replace(/\\D/g, '')"))
    rows = [
        row("timeline: bars", bars, "bars"),
        row("timeline: all bars usable after", opened_s, "s", USABLE_TARGET_S),
        *frames(tab, "timeline, dragged", seconds, drag),
        *frames(tab, "timeline, zoomed", seconds, zoom),
    ]
    tab.close()
    return rows


def _site(address: str) -> str:
    return address.partition("/ui/")[0]
