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
from phalanx.simulate.report.suite import write_suite_report
from phalanx.simulate.suite import JOBS, SEEDS, Cell, Folder, Suite, run_suite, standard

COLUMNS = (
    Column("policy"),
    Column("rank"),
    *(Column(figure.key, f"{figure.title.upper()} ÷ BEST") for figure in FIGURES),
    Column("near_best"),
)
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
    ranking = ranked(cells)
    if output in ("json", "yaml"):
        emit([{"ranking": ranking.rows(), "cells": _cells(ranking)}], COLUMNS, output)
    else:
        emit([dict(row) for row in ranking.rows()], COLUMNS, output)
    if given["report"] is not None:
        write_suite_report(suite, cells, ranking, given["report"], _command(suite, given))


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
