"""`phalanx kube snapshot` and `shadow`: a Kubernetes cluster as it is, recorded with nothing changed on it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.output import Column, Output, emit, emit_one, output_option, say
from phalanx.document.units import duration_ms

if TYPE_CHECKING:
    from phalanx.beside.taken import Taken
    from phalanx.kube.shadow.history import History
    from phalanx.kube.shadow.report import GangWait, Report

STATE, CLUSTER = "state.jsonl", "cluster.yaml"
GANGS_MAX = 20
HOUR_MS = 3_600_000

PENDING = (
    Column("job"),
    Column("namespace"),
    Column("pods"),
    Column("gpus"),
    Column("theirs", "SCHEDULER", spare=True, least=20),
    Column("reason", "PHALANX"),
    Column("why", spare=True, least=20),
)
GANGS = (
    Column("job"),
    Column("namespace", wide=True),
    Column("pods"),
    Column("gpus"),
    Column("waited_s"),
    Column("phalanx_s"),
    Column("earlier_s"),
    Column("held_gpu_h", "HELD GPU-H"),
)
IDLE = (Column("gpu_h", "GPU-H"), Column("gpus", "GPUS WERE"))

access_options = (
    click.option("--kubeconfig", metavar="FILE", help="As of `phalanx kube`."),
    click.option("--context", metavar="NAME", help="Context of the kubeconfig. Default: its current context."),
    click.option("--policy", default="phalanx", show_default=True, metavar="NAME", help="Policy of phalanx."),
    click.option("--topology", multiple=True, metavar="LABEL", help="As of `phalanx kube`."),
)


def _with_access(function: Any) -> Any:
    for option in reversed(access_options):
        function = option(function)
    return function


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--recorded", is_flag=True, help="Read what DIR has; ask no API server.")
@_with_access
@output_option
def snapshot(
    folder: Path,
    recorded: bool,
    kubeconfig: str | None,
    context: str | None,
    policy: str,
    topology: tuple[str, ...],
    output: Output,
) -> None:
    """Record what a cluster has now in DIR, whatever schedules it, and write it there as a State and a cluster file.

    Then `phalanx why ID --state DIR/state.jsonl` explains a pending gang, and
    `phalanx compare --cluster DIR/cluster.yaml --trace DIR/state.jsonl` compares policies on what has ended.
    """
    if not recorded:
        _record(folder, kubeconfig, context, 0.0)
    history, taken = _read(folder, policy, topology)
    emit(list(pending(history, taken)), PENDING, output)
    if output in ("table", "wide"):
        say(f"phalanx why ID --state {folder / STATE}", err=True)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--for", "length", default="7d", show_default=True, metavar="TIME", help="How long to look on.")
@click.option("--report", "report_only", is_flag=True, help="Report on what DIR has so far, and record no more.")
@_with_access
@output_option
def shadow(
    folder: Path,
    length: str,
    report_only: bool,
    kubeconfig: str | None,
    context: str | None,
    policy: str,
    topology: tuple[str, ...],
    output: Output,
) -> None:
    """Look on beside the scheduler of a cluster, without any effect, and report what phalanx would have done.

    Waits count from when a gang is seen first; it has started when all its pods are bound. It can be interrupted and
    goes on with the same DIR: what was missed in between is a gap, and not counted.
    """
    length_ms = duration_ms(length)
    if not length_ms:
        raise click.UsageError(f"--for {length}: expected a time such as 5m or 7d")
    if not report_only:
        _record(folder, kubeconfig, context, length_ms / 1000)
    history, _ = _read(folder, policy, topology)
    _show(history, policy, output)


def _record(folder: Path, kubeconfig: str | None, context: str | None, for_s: float) -> None:
    from phalanx.kube.api.access import find_access
    from phalanx.kube.api.client import Client
    from phalanx.kube.shadow.recorder import Recorder
    from phalanx.kube.shadow.recording import FILE, mend

    access = find_access(kubeconfig, context, os.environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mend(folder / FILE)
    with Client(access) as client, (folder / FILE).open("ab") as file:
        recorder = Recorder(client, file, lambda line: say(line, err=True))
        with _until_told(recorder.stop):
            recorder.run(for_s, lambda: say(f"recording {access} in {folder}", err=True))


@contextlib.contextmanager
def _until_told(stop: Any) -> Iterator[None]:
    """Has SIGTERM and SIGINT end the recording, not the verb."""
    before = {each: signal.signal(each, lambda *_: stop()) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _read(folder: Path, policy: str, topology: tuple[str, ...]) -> tuple[History, Taken]:
    """Reads a recording, and writes beside it what other verbs read."""
    from phalanx.cli.output import as_yaml
    from phalanx.kube.nodes import TOPOLOGY_LABELS
    from phalanx.kube.shadow.history import history_of
    from phalanx.kube.shadow.recording import entries_in
    from phalanx.kube.shadow.state import taken_of
    from phalanx.workload.formats.written import cluster_file

    history = history_of(entries_in(folder), topology or TOPOLOGY_LABELS)
    taken = taken_of(history, policy)
    (folder / STATE).write_bytes(taken.lines())
    (folder / CLUSTER).write_text(as_yaml(cluster_file(taken.state.cluster)))
    for what, count in taken.left_out.items():
        say(f"left out: {count} of: {what}", err=True)
    return history, taken


def pending(history: History, taken: Taken) -> Iterator[dict[str, Any]]:
    """The pending gangs, with what their scheduler says and what phalanx would."""
    from phalanx.engine.why.why import why
    from phalanx.words.reason import because_in

    for job, theirs in taken.reasons.items():
        explained, watched = why(taken.state, job), history.watched[job]
        would_start = taken.state.reason(job) is None
        yield {
            "job": job,
            "namespace": watched.job.user,
            "pods": len(watched.pods),
            "gpus": watched.gpus,
            "theirs": theirs,
            "reason": "starts now" if would_start or explained.reason is None else explained.reason.value,
            "why": "" if would_start else because_in(taken.state, explained),
        }


def _show(history: History, policy: str, output: Output) -> None:
    from phalanx.kube.shadow.report import report_of

    report = report_of(history, policy)
    if output in ("json", "yaml"):
        emit_one(_plain(report), (), output)
        return
    if output == "name":
        emit([_row(gang) for gang in report.gangs], GANGS, output)
        return
    for line in _lines(report):
        click.echo(line)
    different = [gang for gang in report.gangs if abs(gang.earlier_ms) > 1000][:GANGS_MAX]
    if different:
        click.echo()
        emit([_row(gang) for gang in different], GANGS, output)
    click.echo()
    emit([{"gpus": "at work", "gpu_h": _gpu_hours(report.busy_ms)}, *_idle(report)], IDLE, output)


def _lines(report: Report) -> Iterator[str]:
    yield f"recorded {_hours(report.recorded_ms)}, gaps {len(report.gaps)}, not read {len(report.missing)}"
    yield from (f"gap of {_hours(end - begin)}: what happened in it is not counted" for begin, end in report.gaps)
    yield from (f"not read: {line}" for line in report.missing)
    started = sum(gang.theirs_ms is not None and gang.ours_ms is not None for gang in report.gangs)
    waits = report.waits
    yield (
        f"gangs {len(report.gangs)}, started either way {started}: waited {waits.theirs_s} s on average, "
        f"under phalanx {waits.ours_s} s; earlier {waits.earlier}, later {waits.later}"
    )
    yield (
        f"started only here {report.theirs_only}, only under phalanx {report.ours_only}, neither {report.neither}; "
        f"not counted {report.not_counted}"
    )


def _gpu_hours(length_ms: int) -> float:
    return round(length_ms / HOUR_MS, 3)


def _hours(length_ms: int) -> str:
    return f"{length_ms / HOUR_MS:.2f} h"


def _row(gang: GangWait) -> dict[str, Any]:
    return {
        "job": gang.job,
        "namespace": gang.namespace,
        "pods": gang.pods,
        "gpus": gang.gpus,
        "waited_s": _seconds(gang.theirs_ms),
        "phalanx_s": _seconds(gang.ours_ms),
        "earlier_s": _seconds(gang.earlier_ms),
        "held_gpu_h": _gpu_hours(gang.held_ms),
    }


def _seconds(length_ms: int | None) -> float | None:
    return round(length_ms / 1000, 1) if length_ms is not None else None


def _idle(report: Report) -> list[dict[str, Any]]:
    return [{"gpus": why.value, "gpu_h": _gpu_hours(length_ms)} for why, length_ms in report.idle_ms.items()]


def _plain(report: Report) -> dict[str, Any]:
    return {
        "recorded_s": round(report.recorded_ms / 1000, 1),
        "gaps": [{"begin_ms": begin, "end_ms": end} for begin, end in report.gaps],
        "missing": list(report.missing),
        "gangs": [_row(gang) for gang in report.gangs],
        "waited_s": report.waits.theirs_s,
        "phalanx_s": report.waits.ours_s,
        "earlier": report.waits.earlier,
        "later": report.waits.later,
        "only_here": report.theirs_only,
        "only_phalanx": report.ours_only,
        "neither": report.neither,
        "not_counted": report.not_counted,
        "left_out": report.left_out,
        "busy_gpu_h": _gpu_hours(report.busy_ms),
        "idle_gpu_h": {why.name.lower(): _gpu_hours(length_ms) for why, length_ms in report.idle_ms.items()},
    }
