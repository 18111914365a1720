"""`phalanx compare --suite`: all policies on several workloads, loads and seeds, ranked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit
from phalanx.cli.progress import bar
from phalanx.cli.runs import tell_note
from phalanx.cli.trace import tell_bad_rows
from phalanx.simulate.code import code_of
from phalanx.simulate.report.markdown import write_suite_markdown
from phalanx.simulate.report.suite import write_suite_report
from phalanx.simulate.studies.held_out import measuring, tuned_by, tuning
from phalanx.simulate.studies.ranking import FIGURES, Ranking, ranked
from phalanx.simulate.studies.real import Sampled, openb, philly
from phalanx.simulate.studies.suite import (
    HELD_OUT,
    JOBS,
    SEEDS,
    Cell,
    FailedSuiteError,
    Failure,
    Folder,
    Suite,
    Workload,
    run_suite,
    standard,
)

COLUMNS = (
    Column("policy"),
    Column("foresight", wide=True),
    Column("rank"),
    *(Column(figure.key, f"{figure.title.upper()} ÷ BEST") for figure in FIGURES),
    Column("near_best"),
    Column("near_best_equal"),
)
PLACE_COLUMNS = (
    Column("place", "WORKLOAD, LOAD"),
    *(Column(figure.key, f"{figure.title.upper()} ÷ BEST (EQUAL)") for figure in FIGURES),
    Column("best", spare=True),
)
KEYS = tuple(figure.key for figure in FIGURES)
NOT_FOR_SUITES = (
    *("cluster", "trace", "load", "vary", "faults", "checkpoint_every", "until", "throughputs", "estimates", "window"),
    *("seed", "costs", "placement", "quarantine"),
)
REAL = ("philly", "openb_pods", "openb_nodes")


def compare_suite(policies: tuple[str, ...], output: Output, given: dict[str, Any]) -> int | None:
    """Runs what is not there yet, and tells how policies stand."""
    given = {**given, "policies": policies}
    _refuse_what_is_not_used(given)
    seeds = given["seeds"] if _is_given("seeds") else SEEDS
    jobs = given["jobs"] or JOBS
    recorded = _real(given, jobs)
    folder = Folder(Path(given["keep"] or f"suite-{given['suite']}"), code_of(policies))
    if given["suite"] == HELD_OUT:
        tried = tuning(recorded, policies)
        cells, failures, interrupted = _run(tried, folder, given["workers"])
        for failure in failures:
            tell_note(f"not tuned: {failure}")
        if interrupted:
            return _interrupted(tried, cells, folder)
        suite = measuring(recorded, tuned_by(cells, policies), seeds)
    else:
        suite = standard(jobs, seeds, policies, recorded)
    cells, failures, interrupted = _run(suite, folder, given["workers"])
    if cells:
        ranking = ranked(cells, suite.foreseeing, failures)
        _show(suite, ranking, cells, given, output)
        for caveat in ranking.caveats:
            tell_note(caveat)
    for failure in failures:
        click.echo(f"phalanx: {failure}", err=True)
    if interrupted:
        return _interrupted(suite, cells, folder)
    if failures:
        lost = f"{suite.size - len(cells):,} of {suite.size:,} runs failed"
        tell_note(f"{lost}: what is shown is without them, and the same command runs them again")
        return Exit.ERROR
    return None


def _interrupted(suite: Suite, cells: Sequence[Cell], folder: Folder) -> int:
    told = f"interrupted; {len(cells):,} of {suite.size:,} runs are in {folder.path}: the same command goes on there"
    click.echo(f"phalanx: {told}", err=True)
    return Exit.INTERRUPTED


def _refuse_what_is_not_used(given: dict[str, Any]) -> None:
    for name in NOT_FOR_SUITES:
        if _is_given(name):
            raise click.UsageError(f"--{name} is not for --suite: a suite has its own.")
    if given["skip_bad_rows"] and not any(given[name] for name in REAL):
        raise click.UsageError("--skip-bad-rows is for the real traces of a suite, and none is given.")
    if (given["openb_pods"] is None) != (given["openb_nodes"] is None):
        raise click.UsageError("--openb-pods and --openb-nodes go together.")


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _real(given: dict[str, Any], jobs: int) -> list[Workload]:
    """The workloads that are to run on real traces."""
    found = []
    if given["philly"] is not None:
        found.append(philly(given["philly"], jobs, given["skip_bad_rows"]))
    if given["openb_pods"] is not None:
        found.append(openb(given["openb_pods"], given["openb_nodes"], jobs, given["skip_bad_rows"]))
    for workload in found:
        if isinstance(workload.source, Sampled):
            for note in workload.source.trace.notes:
                tell_note(f"{workload.name}: {note}")
            tell_bad_rows(workload.source.trace)
    return found


def _run(suite: Suite, folder: Folder, workers: int | None) -> tuple[list[Cell], tuple[Failure, ...], bool]:
    """What is finished, what failed, and whether it was interrupted."""
    cells: list[Cell] = []
    with bar(suite.size, "runs") as tell, closing(run_suite(suite, folder, workers)) as runs:
        try:
            for cell in runs:
                cells.append(cell)
                if tell is not None:
                    tell(len(cells), f"{cell.workload} at {cell.load:g}, {cell.policy}")
        except KeyboardInterrupt:
            return cells, (), True
        except FailedSuiteError as error:
            return cells, error.failures, False
    return cells, (), False


def _show(suite: Suite, ranking: Ranking, cells: list[Cell], given: dict[str, Any], output: Output) -> None:
    if output in ("json", "yaml"):
        told = {
            "ranking": ranking.rows(),
            "cells": _cells(ranking),
            "distances": _distances(ranking),
            "failures": [asdict(failure) for failure in ranking.failures],
            "caveats": list(ranking.caveats),
            "tuned": suite.tuned,
        }
        emit([told], COLUMNS, output)
    else:
        emit([dict(row) for row in ranking.rows()], COLUMNS, output)
    if output in ("table", "wide"):
        click.echo(f"\n{ranking.subject} beside the best of all, and in brackets of those without foresight:\n")
        emit(_places(ranking), PLACE_COLUMNS, output)
    command = _command(suite, given)
    if given["report"] is not None:
        write_suite_report(suite, cells, ranking, given["report"], command)
    if given["markdown"] is not None:
        write_suite_markdown(suite, cells, ranking, given["markdown"], command)


def _places(ranking: Ranking) -> list[dict[str, str]]:
    """A row for each place: how far the subject is from the best in every figure, and which is best."""
    distances = list(ranking.distances(ranking.subject))
    rows = []
    for place in ranking.places:
        here = [each for each in distances if each.place == place]
        times = {each.figure.key: f"{each.ratio:.2f} ({each.ratio_equals:.2f})" for each in here}
        best = ", ".join(dict.fromkeys(each.best for each in here))
        rows.append({"place": f"{place[0]}, {place[1]:g}", **dict.fromkeys(KEYS, "-"), **times, "best": best})
    return rows


def _distances(ranking: Ranking) -> list[dict[str, Any]]:
    """How far every policy is from the best, figure by figure and place by place."""
    return [
        {
            "workload": each.place[0],
            "load": each.place[1],
            "policy": policy,
            "figure": each.figure.name,
            "times_best": round(each.ratio, 3),
            "best": each.best,
            "times_best_equal": round(each.ratio_equals, 3),
            "best_equal": each.best_equal,
        }
        for policy in ranking.policies
        for each in ranking.distances(policy)
    ]


def _cells(ranking: Ranking) -> list[dict[str, Any]]:
    """Every mean of every place, with its bounds."""
    return [
        {
            "workload": workload,
            "load": load,
            "policy": policy,
            "figure": figure.name,
            "mean": found.mean,
            "low": found.low,
            "high": found.high,
            "seeds": found.count,
            "not_told_from_best": policy in ranking.not_told_apart(figure, (workload, load)),
        }
        for figure in FIGURES
        for (workload, load), means in ranking.means[figure.key].items()
        for policy, found in means.items()
    ]


def _command(suite: Suite, given: dict[str, Any]) -> str:
    """What repeats the runs, wherever they are kept and whatever is made of them."""
    words = ["phalanx", "compare", "--suite", suite.name, "--seeds", str(suite.seeds)]
    for name in ("jobs", *REAL):
        if given[name] is not None:
            words += (f"--{name.replace('_', '-')}", str(given[name]))
    words += ["--skip-bad-rows"] * bool(given["skip_bad_rows"])
    for policy in given["policies"]:
        words += ("--policy", policy)
    return shlex.join(words)
