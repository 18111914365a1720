"""`phalanx compare`: the same trace under several policies, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from phalanx.cli.compare_suite import compare_suite
from phalanx.cli.complete import policy_names
from phalanx.cli.output import Column, Output, emit, emit_parts, output_option
from phalanx.cli.runs import (
    check_targets,
    measure_columns,
    note_kept_advice,
    note_never_fit,
    report,
    run_all,
    run_options,
    study_from,
    tell_note,
    variation_from,
)
from phalanx.cli.varied import DIFFERENCES, Varied
from phalanx.simulate.entry import policies_of
from phalanx.simulate.figures.result import Result
from phalanx.simulate.studies.study import Case, Study
from phalanx.simulate.studies.suite import SUITES
from phalanx.simulate.studies.table import comparison_rows

POLICY = Column("policy")


@click.command()
@run_options
@click.option(
    "--policy",
    "policies",
    shell_complete=policy_names,
    multiple=True,
    metavar="NAME[:key=value,…]",
    help="A policy to compare, or ./mine.py:NAME; repeatable. Default with --suite: all built-in ones.",
)
@click.option(
    "--suite",
    type=click.Choice(SUITES),
    help="Compare the policies on several workloads and loads, with 10 seeds unless --seeds is given.",
)
@click.option(
    "--keep", metavar="DIR", help="With --suite: store results here and run only those missing. Default: suite-NAME."
)
@click.option(
    "--jobs",
    type=click.IntRange(2),
    help="With --suite: jobs per run; fewer are faster and less precise. Default: 400.",
)
@click.option("--philly", metavar="FILE", help="With --suite: a recorded trace of any format for the workload philly.")
@click.option(
    "--openb-pods", metavar="FILE", help="With --suite: recorded pods for the workload openb; needs --openb-nodes."
)
@click.option("--openb-nodes", metavar="FILE", help="With --suite: the nodes that the pods of --openb-pods ran on.")
@click.option("--markdown", metavar="FILE", help="With --suite: write the results as a Markdown page with tables.")
@output_option
def compare(policies: tuple[str, ...], output: Output, **given: Any) -> int | None:
    """Run a trace under several policies and compare the results; a star marks the best of each column.

    With --seeds only where the paired differences tell it from all others; a tilde marks those not told from the best.
    Runs share the CPUs of this machine. Ctrl-C ends them and shows the finished ones. A policy that fails is named at
    the end, and the results of the other policies are shown.
    """
    check_targets(given, ("report", "markdown"))
    if given["suite"] is not None:
        return compare_suite(policies, output, given)
    for name in ("keep", "jobs", "markdown", "philly", "openb_pods", "openb_nodes"):
        if given[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --suite.")
    if not policies:
        raise click.UsageError("Missing option '--policy'.")
    study = study_from(given)
    variation = variation_from(given)
    cases = study.cases(policies_of(policies), given["seeds"], variation)
    is_varied = variation is not None or given["seeds"] > 1
    if is_varied:
        study.own_load(cases)
    runs = run_all(study, cases, given["workers"])
    if runs.finished:
        show = _show_varied if is_varied else _show
        show(study, runs.finished, given, output)
    return runs.end(len(cases))


def _show(study: Study, runs: Sequence[tuple[Case, Result]], given: dict[str, Any], output: Output) -> None:
    results = [result for _, result in runs]
    if output in ("json", "yaml"):
        emit([result.summary for result in results], (POLICY,), output)
    else:
        emit_parts([row.texts() for row in comparison_rows(results)], (POLICY, *measure_columns(results)), output)
    report(given, results, f"{results[0].setup['trace']} on {study.cluster.name}")
    if len(results) > 1 and output in ("table", "wide"):
        tell_note("one draw of arrivals: what is best here may be chance; --seeds 10 tells")
    _tell_counts(results)


def _show_varied(study: Study, runs: Sequence[tuple[Case, Result]], given: dict[str, Any], output: Output) -> None:
    varied = Varied.of(study, runs)
    if output in ("json", "yaml"):
        emit(varied.objects(), varied.columns, output)
    else:
        emit_parts(varied.rows(), varied.columns, output, naming=2)
    if output == "wide" and (rows := varied.difference_rows()):
        click.echo("\nPaired differences to the best of each figure, over seeds, with their 95 % intervals:\n")
        emit(rows, (*varied.columns[:2], *DIFFERENCES), output)
    results, which = varied.shown_in_detail()
    report(given, results, f"{results[0].setup['trace']} on {study.cluster.name}; {which}", varied.curves, runs)
    _tell_counts(results)


def _tell_counts(results: Sequence[Result]) -> None:
    note_never_fit(results)
    note_kept_advice(results)
    if len({result.summary["jobs"]["completed"] for result in results}) > 1:
        tell_note("policies completed different numbers of jobs: times to completion are not of the same jobs")
