"""`phalanx simulate`: a trace on a cluster under a policy, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import click
from click.core import ParameterSource

from phalanx.cli.complete import policy_names
from phalanx.cli.exit import Exit
from phalanx.cli.files import save_journal
from phalanx.cli.interrupt import Interrupt
from phalanx.cli.output import Column, Output, emit, emit_one, emit_parts, output_option
from phalanx.cli.progress import Follower, bar
from phalanx.cli.runs import (
    check_targets,
    note_kept_advice,
    note_never_fit,
    one_policy,
    report,
    run_all,
    run_options,
    study_from,
    until_after,
    variation_from,
)
from phalanx.cli.saved import run_from
from phalanx.cli.varied import Varied
from phalanx.engine.state.journal import Count, Journal
from phalanx.errors import PhalanxError
from phalanx.simulate.entry import policies_of, until_of
from phalanx.simulate.figures.metrics import per_job_csv
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.window import Window
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.saved import save as save_simulation
from phalanx.simulate.simulation import Simulation
from phalanx.simulate.studies.batch import carry_on, naming
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.table import count_text, duration_text, index_text, share_text, times_text

TARGETS = ("save", "per_job", "journal", "report")
OF_A_NEW_RUN = (
    "cluster",
    "trace",
    "placement",
    "costs",
    "seed",
    "faults",
    "checkpoint_every",
    "quarantine",
    "estimates",
    "load",
    "vary",
    "seeds",
    "workers",
    "skip_bad_rows",
)
OF_ONE_RUN = ("save", "per_job", "journal")

COLUMNS = (
    Column("policy"),
    Column("jobs"),
    Column("makespan"),
    Column("gpus", "GPUS"),
    Column("work"),
    Column("failures"),
    Column("changes"),
    Column("fairness"),
    Column("promises"),
    Column("deadlines"),
    Column("events", wide=True),
    Column("digest", wide=True),
    Column("run", wide=True),
)
TIME_COLUMNS = (Column("time"), Column("mean"), Column("p50"), Column("p95"), Column("p99"))
PART_COLUMNS = (
    Column("jobs"),
    *(Column(f"{time}_{percent}") for time in ("queued", "jct") for percent in ("p50", "p95", "p99")),
    Column("slowdown"),
)
TIMES = {"jct_s": "to completion", "wait_s": "to the first start", "queued_s": "pending in all"}


class ResumeError(PhalanxError):
    """A saved run that cannot go on as asked."""


@click.command()
@run_options
@click.option(
    "--policy",
    "policies",
    shell_complete=policy_names,
    multiple=True,
    metavar="NAME[:key=value,…]",
    help="The policy, or your own as ./mine.py:NAME. Default: the policy of the cluster file.",
)
@click.option(
    "--save",
    metavar="FILE",
    help="Save the run at its end, at --until or at Ctrl-C, for --resume and `phalanx what-if --state`.",
)
@click.option("--resume", metavar="FILE", help="Continue a run saved by --save.")
@click.option("--per-job", metavar="FILE", help="Write a CSV with one line per job.")
@click.option("--journal", metavar="FILE", help="Write the journal, for `phalanx replay` and `phalanx why --state`.")
@output_option
def simulate(policies: tuple[str, ...], output: Output, **given: Any) -> int | None:
    """Run a trace on a cluster under a policy in virtual time, with the scheduler that the server uses.

    Ctrl-C ends the run early and shows its results up to then.
    """
    policy = one_policy(policies, "simulate runs one; to see several side by side: phalanx compare")
    check_targets(given, TARGETS)
    if given["resume"] is not None:
        return _resume(policy or "", given, output)
    study = study_from(given)
    variation = variation_from(given)
    cases = study.cases(policies_of([policy or study.cluster.policy]), given["seeds"], variation)
    if variation is not None or given["seeds"] > 1:
        return _run_several(study, cases, given, output)
    return _run_one(study, cases[0], given, output)


def _run_one(study: Study, case: Case, given: dict[str, Any], output: Output) -> int | None:
    setup = study.setup(case)
    began_s = perf_counter()
    with naming(case.policy):
        simulation = Simulation(setup, Journal() if given["journal"] is not None else None)
        simulation.begin()
    return _follow(simulation, case.policy, began_s, given, output)


def _resume(policy: str, given: dict[str, Any], output: Output) -> int | None:
    context = click.get_current_context()
    for name in OF_A_NEW_RUN:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} is of a new run: --resume goes on with what was saved.")
    began_s = perf_counter()
    simulation = saved_run(given["resume"], policy)
    until_after(simulation, given["until"], given["resume"])
    if given["journal"] is not None and isinstance(simulation.run.journal, Count):
        raise ResumeError(f"{given['resume']}: was saved by a run without --journal, so its records are not there")
    return _follow(simulation, simulation.setup.policy, began_s, given, output)


def saved_run(path: str, policy: str = "") -> Simulation:
    """A saved run. A policy may be named; another than its own is an error."""
    spec = resolve_policy(policy) if policy else ""
    simulation = run_from(path)
    own = simulation.setup.policy
    if spec and spec != own:
        raise ResumeError(
            f"{path}: was saved under the policy {own!r} and goes on with it; "
            f"to see other futures of it: phalanx what-if --state {path}"
        )
    return simulation


def _follow(simulation: Simulation, policy: str, began_s: float, given: dict[str, Any], output: Output) -> int | None:
    """Takes a run to its end, and shows and writes what it came to."""
    with Interrupt() as interrupt, bar(len(simulation.jobs), "jobs") as tell:
        window = Window.parse(given["window"]) if given["window"] is not None else None
        result = carry_on(simulation, policy, began_s, until_of(given["until"]), Follower(interrupt, tell), window)
    _write(simulation, result, given)
    _show(result, output)
    note_never_fit([result])
    note_kept_advice([result])
    if interrupt.asked:
        click.echo(f"phalanx: interrupted; this is how it was at {_at(simulation)} of virtual time", err=True)
        return Exit.INTERRUPTED
    return None


def _at(simulation: Simulation) -> str:
    return duration_text(simulation.run.state.now / 1000)


def _write(simulation: Simulation, result: Result, given: dict[str, Any]) -> None:
    if given["save"] is not None:
        save_simulation(simulation, given["save"])
    if given["journal"] is not None:
        save_journal(simulation.run.journal, given["journal"])
    if given["per_job"] is not None:
        with Path(given["per_job"]).open("w", encoding="utf-8", newline="") as file:
            per_job_csv(result.jobs, file)
    report(given, [result], f"{result.setup['trace']} on {result.setup['cluster']}")


def _run_several(study: Study, cases: list[Case], given: dict[str, Any], output: Output) -> int | None:
    for name in OF_ONE_RUN:
        if given[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is of one run: not with --vary or --seeds.")
    # Asked for before hours of runs: without a load of its own, there is nothing to draw curves against.
    study.own_load(cases)
    runs = run_all(study, cases, given["workers"])
    if not runs.finished:
        return runs.end(len(cases))
    varied = Varied.of(study, runs.finished)
    if output in ("json", "yaml"):
        emit_one(varied.objects()[0], varied.columns, output)
    else:
        emit_parts(varied.rows(), varied.columns, output, naming=2)
    results, which = varied.shown_in_detail()
    title = f"{results[0].setup['trace']} on {results[0].setup['cluster']}; {which}"
    report(given, results, title, varied.curves, runs.finished)
    note_never_fit(results)
    note_kept_advice(results)
    return runs.end(len(cases))


def _show(result: Result, output: Output) -> None:
    summary = result.summary
    if output not in ("table", "wide"):
        emit_one(summary, COLUMNS, output)
        return
    lines = _lines(summary, result.setup["gpus"])
    emit_one(lines, [column for column in COLUMNS if column.key in lines], output)
    click.echo()
    times = {name: summary[field] for field, name in TIMES.items()}
    if "deadlines" in summary:
        times["after the deadline"] = summary["deadlines"]["late_s"]
    spreads = [
        {"time": name} | {key: _known(duration_text, value) for key, value in figures.items()}
        for name, figures in times.items()
    ]
    emit(spreads, TIME_COLUMNS, output)
    if output == "wide":
        for part in ("queue", "size"):
            click.echo()
            emit(list(_parts(summary[f"by_{part}"])), (Column("part", part.upper()), *PART_COLUMNS), output)


def _parts(parts: dict[str, dict[str, Any]]) -> Iterator[dict[str, object]]:
    """A row for each queue, or each number of GPUs that jobs ask for."""
    for name, found in parts.items():
        times = {
            f"{time}_{percent}": _known(duration_text, found[f"{time}_s"][percent])
            for time in ("queued", "jct")
            for percent in ("p50", "p95", "p99")
        }
        yield {"part": name, "jobs": found["jobs"], **times, "slowdown": _known(times_text, found["slowdown"]["mean"])}


def _lines(summary: dict[str, Any], gpus: int) -> dict[str, str]:
    """What a run came to, in words."""
    counts = {name: count for name, count in summary["jobs"].items() if count and name != "submitted"}
    ended = ", ".join(f"{count_text(count)} {name.replace('_', ' ')}" for name, count in counts.items())
    fairness, run = summary["fairness"], summary["run"]
    return {
        "policy": summary["policy"],
        "jobs": f"{count_text(summary['jobs']['submitted'])} submitted: {ended or 'none'}",
        "makespan": _known(duration_text, summary["makespan_s"]),
        "gpus": f"{_known(share_text, summary['gpu_allocated'])} allocated, "
        f"{_known(share_text, summary['gpu_busy'])} busy; "
        f"{_known(share_text, summary['fragmentation'])} of what was free was of no use",
        "work": f"{_known(share_text, summary['goodput'])} of the time held was of use; "
        f"{count_text(round(summary['lost_gpu_s'] / 3600, 1))} GPU-hours lost",
        **_failures(summary),
        "changes": f"{count_text(summary['preemptions'])} preemptions, {count_text(summary['moves'])} moves, "
        f"{count_text(summary['resizes'])} resizes",
        "fairness": f"Jain's index of queues {_known(index_text, fairness['jain'])}, "
        f"worst finish-time fairness {_known(index_text, fairness['worst_ftf'])}",
        **_tiers(summary, gpus),
        **_deadlines(summary),
        "events": count_text(summary["events"]),
        "digest": summary["digest"],
        "run": f"{run['wall_s']:.3g} s, {run['peak_mb']:.0f} MB",
    }


def _failures(summary: dict[str, Any]) -> dict[str, str]:
    """What failures cost, where there are any: the parts of what jobs held GPUs for."""
    if "failures" not in summary:
        return {}
    found = summary["failures"]
    held = sum(found["gpu_s"].values()) or 1.0
    parts = ", ".join(f"{name} {share_text(value / held)}" for name, value in found["gpu_s"].items() if value > 0)
    counts = f"{count_text(found['happened'])} happened, {count_text(found['interrupted'])} attempts interrupted"
    if loop := found.get("health_loop"):
        counts += f", {count_text(loop['nodes'])} nodes in quarantine, {count_text(loop['canaries'])} canaries"
    return {"failures": f"{counts}; {parts}; {count_text(round(found['queueing_gpu_s'] / 3600, 1))} GPU-hours queueing"}


def _tiers(summary: dict[str, Any], gpus: int) -> dict[str, str]:
    """How many jobs of each tier had what it promises, and where more is promised than there is."""
    told = []
    for tier, figures in summary.get("tiers", {}).items():
        if figures["promised"]:
            needed = figures["needed_gpus"]
            short = f", needs {count_text(needed)} GPUs of {count_text(gpus)}" if needed > gpus else ""
            told.append(f"{tier} kept for {share_text(figures['attained'])} of {count_text(figures['jobs'])}{short}")
    return {"promises": "; ".join(told)} if told else {}


def _deadlines(summary: dict[str, Any]) -> dict[str, str]:
    """How many deadlines were met, where there are any."""
    if "deadlines" not in summary:
        return {}
    counts = summary["deadlines"]
    still_open = f", {count_text(counts['open'])} not yet due" if counts["open"] else ""
    met = f"{count_text(counts['met'])} of {count_text(counts['jobs'])} met, {count_text(counts['missed'])} missed"
    return {"deadlines": met + still_open}


def _known(text: Callable[[float], str], value: float | None) -> str:
    return "-" if value is None else text(value)
