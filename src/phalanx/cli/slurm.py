"""`phalanx slurm`: what a Slurm cluster looks like to phalanx, with nothing changed on it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option, say
from phalanx.document.units import duration_ms

if TYPE_CHECKING:
    from phalanx.beside.taken import Taken

POLICY = "priority:backfill=easy"
"""The nearest to what Slurm does by itself: its priorities, and backfill beside reservations."""

STATE, CLUSTER = "state.jsonl", "cluster.yaml"

COLUMNS = (
    Column("job"),
    Column("user"),
    Column("gpus"),
    Column("slurm"),
    Column("reason", "PHALANX"),
    Column("why", spare=True, least=20),
)
REPORT_COLUMNS = tuple(
    Column(key) for key in ("looks", "seen_pending", "started", "slurm_wait_s", "phalanx_wait_s", "earlier", "later")
)


@click.group()
def slurm() -> None:
    """Look at a Slurm cluster and change nothing on it."""


@slurm.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--recorded", is_flag=True, help="Read what DIR has, recorded elsewhere; ask no Slurm.")
@click.option("--days", type=click.IntRange(1), default=7, show_default=True, help="How much accounting to read.")
@click.option("--policy", default=POLICY, show_default=True, help="Policy of the State.")
@output_option
def snapshot(folder: Path, recorded: bool, days: int, policy: str, output: Output) -> None:
    """Record what Slurm says in DIR, and write it there as a State, a trace and a cluster file.

    Then `phalanx why ID --state DIR/state.jsonl` explains a pending job, and
    `phalanx compare --cluster DIR/cluster.yaml --trace DIR/trace.txt` compares policies on what has ended.
    """
    from phalanx.backends.slurm.snapshot import read_folder, record_texts

    if not recorded:
        for line in record_texts(folder, days, int(time.time() * 1000)):
            say(f"not recorded: {line}", err=True)
    taken = read_folder(folder, policy)
    _write(folder, taken)
    for what, count in taken.left_out.items():
        say(f"left out: {count} of: {what}", err=True)
    emit(list(_rows(taken)), COLUMNS, output)
    if output in ("table", "wide"):
        say(f"phalanx why ID --state {folder / STATE}", err=True)


@slurm.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--for", "length", default="7d", show_default=True, metavar="TIME", help="How long to look.")
@click.option("--every", default="5m", show_default=True, metavar="TIME", help="How often to look.")
@click.option("--policy", default=POLICY, show_default=True, help="Policy that decides beside Slurm.")
@click.option("--report", "report_only", is_flag=True, help="Print what DIR has so far, and look no more.")
@output_option
def shadow(folder: Path, length: str, every: str, policy: str, report_only: bool, output: Output) -> None:
    """Decide beside Slurm for a while, without any effect, and report when each would have started pending jobs.

    Waits count from the first look at a job. LATER are jobs that Slurm started before phalanx would have. It can be
    interrupted and goes on with the same DIR.
    """
    from phalanx.backends.slurm import shadow as beside

    if not report_only:
        _look_on(folder, _length(length, "--for"), _length(every, "--every"), policy)
    found = beside.report(beside.looks_in(folder))
    emit_one({column.key: getattr(found, column.key) for column in REPORT_COLUMNS}, REPORT_COLUMNS, output)


def _look_on(folder: Path, length_ms: int, every_ms: int, policy: str) -> None:
    from phalanx.backends.slurm import shadow as beside
    from phalanx.backends.slurm.commands import SlurmDown
    from phalanx.backends.slurm.snapshot import read_folder, record_texts

    until_s = time.monotonic() + length_ms / 1000
    while True:
        at_ms = int(time.time() * 1000)
        try:
            record_texts(folder, 1, at_ms)
            beside.add(folder, beside.look_at(read_folder(folder, policy), at_ms))
        except SlurmDown as error:
            say(f"no look: {error}", err=True)
        if time.monotonic() + every_ms / 1000 > until_s:
            return
        time.sleep(every_ms / 1000)


def _length(text: str, option: str) -> int:
    found = duration_ms(text)
    if not found:
        raise click.UsageError(f"{option} {text}: expected a time such as 5m or 7d")
    return found


def _write(folder: Path, taken: Taken) -> None:
    from phalanx.cli.output import as_yaml
    from phalanx.workload.formats.written import cluster_file

    (folder / STATE).write_bytes(taken.lines())
    (folder / CLUSTER).write_text(as_yaml(cluster_file(taken.state.cluster)))


def _rows(taken: Taken) -> Any:
    from phalanx.engine.why.why import why
    from phalanx.words.reason import because_in

    for job, reason in taken.reasons.items():
        explained = why(taken.state, job)
        asked = taken.state.jobs[job].job
        yield {
            "job": job,
            "user": asked.user,
            "gpus": asked.gang.gpus_max,
            "slurm": reason,
            "reason": explained.reason.value if explained.reason else "starts now",
            "why": because_in(taken.state, explained),
        }
