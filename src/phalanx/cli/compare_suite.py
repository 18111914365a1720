"""`phalanx compare --suite`: all policies on several workloads, loads and seeds, ranked."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, emit
from phalanx.cli.progress import bar
from phalanx.simulate.ranking import FIGURES, Ranking, ranked
from phalanx.simulate.report.markdown import write_suite_markdown
from phalanx.simulate.report.suite import write_suite_report
from phalanx.simulate.suite import JOBS, SEEDS, Cell, Folder, Suite, run_suite, standard

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
NOT_FOR_SUITES = ("cluster", "trace", "load", "vary", "faults", "until", "throughputs")


def compare_suite(policies: tuple[str, ...], output: Output, given: dict[str, Any]) -> int | None:
    """Runs what is not there yet, and tells how policies stand."""
    for name in NOT_FOR_SUITES:
        if given[name] is not None:
            raise click.UsageError(f"--{name} is not for --suite: a suite has its own.")
    seeds = given["seeds"] if given["seeds"] > 1 else SEEDS
    suite = standard(given["jobs"] or JOBS, seeds, policies)
    folder = Folder(Path(given["keep"] or f"suite-{suite.name}"), version("phalanx"))
    cells, interrupted = _run(suite, folder, given["workers"])
    if cells:
        _show(suite, cells, given, output)
    if interrupted:
        told = (
            f"interrupted; {len(cells):,} of {suite.size:,} runs are in {folder.path}: the same command goes on there"
        )
        click.echo(f"phalanx: {told}", err=True)
        return Exit.INTERRUPTED
    return None


def _run(suite: Suite, folder: Folder, workers: int | None) -> tuple[list[Cell], bool]:
    cells: list[Cell] = []
    with bar(suite.size, "runs") as tell, closing(run_suite(suite, folder, workers)) as runs:
        try:
            for cell in runs:
                cells.append(cell)
                if tell is not None:
                    tell(len(cells), f"{cell.workload} at {cell.load:g}, {cell.policy}")
        except KeyboardInterrupt:
            return cells, True
    return cells, False


def _show(suite: Suite, cells: list[Cell], given: dict[str, Any], output: Output) -> None:
    ranking = ranked(cells, suite.foreseeing)
    if output in ("json", "yaml"):
        told = {"ranking": ranking.rows(), "cells": _cells(ranking), "distances": _distances(ranking)}
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
    """A row for each place: how far the subject is from the best in every figure, and who is best."""
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
        }
        for figure in FIGURES
        for (workload, load), means in ranking.means[figure.key].items()
        for policy, found in means.items()
    ]


def _command(suite: Suite, given: dict[str, Any]) -> str:
    jobs = f" --jobs {given['jobs']}" if given["jobs"] else ""
    return f"phalanx compare --suite {suite.name} --seeds {suite.seeds}{jobs}"
