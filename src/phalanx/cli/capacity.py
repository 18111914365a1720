"""`phalanx capacity`: how many nodes keep waits below a target, and what a history costs and waits on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from phalanx.capacity.answer import never_notes, plan_data, point_data, sentences, time_text
from phalanx.capacity.planner import Plan, Planner, curve
from phalanx.capacity.point import Point
from phalanx.capacity.question import check_jobs, draws_of, numbers_of
from phalanx.capacity.runs import Runs
from phalanx.capacity.target import EXAMPLE, Figure, Target
from phalanx.cli.complete import policy_names
from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, as_json, as_yaml, emit, emit_parts, output_option
from phalanx.cli.progress import bar
from phalanx.cli.runs import study_from, study_options, tell_note
from phalanx.simulate.entry import policies_of
from phalanx.simulate.studies.table import count_text, share_text

SEEDS = 5
FIGURES = ("mean queued", "p50 queued", "p95 queued", "p99 queued", "mean jct")
"""What is told of each point where no target says what counts."""


@click.command()
@study_options
@click.option(
    "--policy",
    "policies",
    shell_complete=policy_names,
    multiple=True,
    metavar="NAME[:key=value,…]",
    help="The policy; repeatable. Default: the policy of the cluster file.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="TARGET",
    help=f"What is to hold, such as '{EXAMPLE}'; repeatable. Without it, the curve of --nodes is shown.",
)
@click.option(
    "--figure",
    "figures",
    multiple=True,
    metavar="FIGURE",
    help="Another figure to show, such as 'p99 queued(queue=research)'; repeatable.",
)
@click.option(
    "--nodes",
    metavar="N|FROM:TO[:STEP]",
    help="Numbers of nodes to look at. Default: with --target from few to more than enough, else as they are.",
)
@click.option("--like", default="", metavar="NODE", help="Vary nodes of this kind. Default: the most common kind.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=SEEDS,
    show_default=True,
    help="Draws of the arrivals for each number of nodes; intervals are over these.",
)
@click.option(
    "--price", type=click.FloatRange(0), default=0.0, help="US dollars per GPU-hour, where the cluster file has none."
)
@output_option
def capacity(
    policies: tuple[str, ...], targets: tuple[str, ...], figures: tuple[str, ...], output: Output, **given: Any
) -> int | None:
    """Find the least number of nodes with which jobs wait no longer than wanted, and show the curve around it.

    The trace is a history: what sacct printed, the journal of a server, or any other trace. The same jobs are run on
    clusters of several sizes; --load +30% has more of them come. Without --target: what the history costs and waits.
    """
    wanted = [Target.parse(text) for text in targets]
    shown = tuple(dict.fromkeys((*(target.figure for target in wanted), *map(Figure.parse, figures))))
    shown = shown if wanted or figures else tuple(map(Figure.parse, FIGURES))
    between = numbers_of(given["nodes"])
    study = replace(study_from(given), like=given["like"])
    seeds, notes = draws_of(study, given["seeds"])
    for note in notes:
        tell_note(note)
    check_jobs(study, shown)
    specs = policies_of(policies or [study.cluster.policy])
    plans: list[Plan] = []
    points: list[Point] = []
    for policy, spec in specs.items():
        with bar(0, "runs") as tell:
            runs = Runs(study, policy, spec, shown, given["workers"], given["price"], tell)
            if wanted:
                ends = (between[0], between[-1]) if between else None
                plans.append(Planner(runs, wanted, seeds, ends).plan())
            else:
                points += curve(runs, between, seeds)
        for note in never_notes(policy, runs.never):
            tell_note(note)
    if wanted:
        _show_plans(plans, shown, seeds, output)
        return None if all(plan.is_reached for plan in plans) else Exit.ERROR
    _show_points(points, shown, (), output)
    return None


def _show_plans(plans: Sequence[Plan], figures: Sequence[Figure], seeds: int, output: Output) -> None:
    if output in ("json", "yaml"):
        data = [plan_data(plan, figures) for plan in plans]
        click.echo(as_json(data) if output == "json" else as_yaml({"plans": data}), nl=output == "json")
        return
    if output == "name":
        for plan in plans:
            click.echo(plan.answer.nodes if plan.answer is not None else "none")
        return
    for plan in plans:
        click.echo("\n".join(sentences(plan, seeds)) + "\n")
    _show_points([point for plan in plans for point in plan.curve], figures, plans[0].targets, output)


def _show_points(points: Sequence[Point], figures: Sequence[Figure], targets: Sequence[Target], output: Output) -> None:
    rows = [_row(point, figures, targets) for point in points]
    if output in ("json", "yaml"):
        data = [point_data(point, figures) for point in points]
        click.echo(as_json(data) if output == "json" else as_yaml({"points": data}), nl=output == "json")
    elif output == "name":
        emit(rows, (Column("nodes"),), output)
    else:
        emit_parts(rows, _columns(points, figures, targets), output, naming=2)


def _columns(points: Sequence[Point], figures: Sequence[Figure], targets: Sequence[Target]) -> list[Column]:
    columns = [Column("policy"), Column("nodes"), Column("gpus", "GPUS")]
    columns += [Column(str(figure), str(figure).upper()) for figure in figures]
    columns += [Column("holds")] if targets else []
    columns += [Column("allocated"), Column("gpu_hours", "GPU-HOURS")]
    priced = [Column("usd_held", "USD HELD"), Column("usd_month", "USD/MONTH")]
    return columns + (priced if any(point.usd_month for point in points) else [])


def _row(point: Point, figures: Sequence[Figure], targets: Sequence[Target]) -> dict[str, object]:
    found = {str(figure): time_text(point, index) for index, figure in enumerate(figures)}
    return {
        "policy": point.policy,
        "nodes": point.nodes,
        "gpus": point.gpus,
        **found,
        "holds": "yes" if point.holds(targets) else "no",
        "allocated": share_text(point.allocated.mean),
        "gpu_hours": count_text(round(point.gpu_hours.mean, 1)),
        "usd_held": count_text(round(point.usd_held)),
        "usd_month": count_text(round(point.usd_month)),
    }
