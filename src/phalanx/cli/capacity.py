"""`phalanx capacity`: how many nodes keep waits below a target, and what a history costs and waits on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import click

from phalanx.capacity.demand import LARGE_GAP, gap_ms
from phalanx.capacity.planner import Plan, Planner, curve
from phalanx.capacity.point import Point
from phalanx.capacity.runs import Runs
from phalanx.capacity.target import EXAMPLE, Figure, NoSuchJobsError, Target
from phalanx.cli.complete import policy_names
from phalanx.cli.exit import Exit
from phalanx.cli.output import Column, Output, as_json, as_yaml, emit, emit_parts, output_option
from phalanx.cli.progress import bar
from phalanx.cli.runs import study_from, study_options, tell_note
from phalanx.simulate.entry import policies_of
from phalanx.simulate.figures.confidence import Interval
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.studies.source import Recorded
from phalanx.simulate.studies.study import Study
from phalanx.simulate.studies.table import count_text, duration_text, share_text
from phalanx.simulate.studies.vary import NODES, Variation

SCHEMA = 1
SEEDS = 5
JOBS_MANY = 20
"""Of fewer jobs any gap is large."""

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
    between = _numbers(given["nodes"])
    study = replace(study_from(given), like=given["like"])
    seeds = _seeds(study, given["seeds"])
    _check_jobs(study, shown)
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
        _note_never(policy, runs.never)
    if wanted:
        _show_plans(plans, shown, seeds, output)
        return None if all(plan.is_reached for plan in plans) else Exit.ERROR
    _show_points(points, shown, (), output)
    return None


def _numbers(text: str | None) -> tuple[int, ...]:
    """The numbers of nodes that `--nodes` names."""
    if text is None:
        return ()
    span = text if ":" in text else f"{text}:{text}"
    return tuple(int(value) for value in Variation.parse(f"{NODES}={span}").values)


def _seeds(study: Study, seeds: int) -> int:
    """How many draws there can be: arrivals that are all at once cannot be drawn anew."""
    if not isinstance(study.source, Recorded):
        return seeds
    longest_ms, span_ms = gap_ms(study.source.trace)
    if not span_ms:
        tell_note("all jobs are submitted at once: there is one draw of that, and no interval")
        return 1
    if longest_ms > LARGE_GAP * span_ms and len(study.source.trace.jobs) >= JOBS_MANY:
        gap, span = duration_text(longest_ms / 1000), duration_text(span_ms / 1000)
        tell_note(f"the trace has no submission for {gap} of {span}: the load before and after is higher than its mean")
    return seeds


def _check_jobs(study: Study, figures: Sequence[Figure]) -> None:
    """Finds out before hours of runs that a figure is of no job."""
    if not isinstance(study.source, Recorded):
        return
    jobs = study.source.trace.jobs
    for figure in figures:
        if not any(figure.is_of(max(job.gpus, job.max_gpus), job.queue) for job in jobs):
            sizes = ", ".join(map(str, sorted({job.gpus for job in jobs})[:20]))
            queues = ", ".join(sorted({job.queue for job in jobs})[:20])
            raise NoSuchJobsError(f"{figure}: no job of the trace is one of these; GPUs: {sizes}; queues: {queues}")


def _show_plans(plans: Sequence[Plan], figures: Sequence[Figure], seeds: int, output: Output) -> None:
    if output in ("json", "yaml"):
        data = [_plan_data(plan, figures) for plan in plans]
        click.echo(as_json(data) if output == "json" else as_yaml({"plans": data}), nl=output == "json")
        return
    if output == "name":
        for plan in plans:
            click.echo(plan.answer.nodes if plan.answer is not None else "none")
        return
    for plan in plans:
        click.echo("\n".join(_sentences(plan, seeds)) + "\n")
    _show_points([point for plan in plans for point in plan.curve], figures, plans[0].targets, output)


def _note_never(policy: str, never: Mapping[str, int]) -> None:
    if never:
        largest = max(never, key=lambda job: never[job])
        jobs = "1 job starts" if len(never) == 1 else f"{len(never):,} jobs start"
        counts = "counts" if len(never) == 1 else "count"
        tell_note(
            f"policy {policy}: {jobs} with no number of nodes and {counts} in no figure; "
            f"the largest: {largest}, of {never[largest]} GPUs"
        )


def _sentences(plan: Plan, seeds: int) -> list[str]:
    """The answer in words."""
    point = plan.answer or plan.best
    told = [
        f"{target.figure} < {_brief(target.below_s)}: {_time(point, index)}"
        for index, target in enumerate(plan.targets)
    ]
    now = f"now: {_size(plan.present)}, {_told(plan.present, plan.targets)}"
    if plan.answer is None:
        best = f"{'; '.join(told)} with {_size(point)} is the best"
        return [f"{plan.policy}: no number of nodes reaches {best}; more change nothing", f"  {now}"]
    less = next((each for each in plan.curve if each.nodes == point.nodes - 1), None)
    lines = [f"{plan.policy}: {_size(point)} hold {'; '.join(told)}, over {_draws(seeds)}", f"  {now}"]
    if less is not None:
        lines.append(f"  with {_size(less)} not: {_told(less, plan.targets)}")
    if plan.check is not None:
        lines.append(f"  over {_draws(seeds)} more: {_told(plan.check, plan.targets)}")
    return lines


def _brief(seconds: float) -> str:
    """A limit as people write it: 10m, not 10m 0s."""
    return " ".join(part for part in duration_text(seconds).split() if part[:-1].strip("0"))


def _size(point: Point) -> str:
    return f"{point.nodes:,} node{'s' * (point.nodes != 1)} ({point.gpus:,} GPUs)"


def _draws(seeds: int) -> str:
    return "1 draw" if seeds == 1 else f"{seeds} draws"


def _told(point: Point, targets: Sequence[Target]) -> str:
    return "; ".join(f"{target.figure} {_time(point, index)}" for index, target in enumerate(targets))


def _show_points(points: Sequence[Point], figures: Sequence[Figure], targets: Sequence[Target], output: Output) -> None:
    rows = [_row(point, figures, targets) for point in points]
    if output in ("json", "yaml"):
        data = [_point_data(point, figures) for point in points]
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
    found = {str(figure): _time(point, index) for index, figure in enumerate(figures)}
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


def _time(point: Point, index: int) -> str:
    found = point.figure(index)
    if found is None:
        return "never starts" if any(sample.values[index] == inf for sample in point.samples) else "-"
    margin = "" if found.high is None else f" ± {duration_text(found.high - found.mean)}"
    return duration_text(found.mean) + margin


def _plan_data(plan: Plan, figures: Sequence[Figure]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "policy": plan.policy,
        "targets": [{"figure": str(each.figure), "below_s": each.below_s} for each in plan.targets],
        "reached": plan.is_reached,
        "answer": None if plan.answer is None else _point_data(plan.answer, figures),
        "best": _point_data(plan.best, figures),
        "present": _point_data(plan.present, figures),
        "check": None if plan.check is None else _point_data(plan.check, figures),
        "curve": [_point_data(point, figures) for point in plan.curve],
        "never_start": len(plan.never),
        "runs": plan.runs,
    }


def _point_data(point: Point, figures: Sequence[Figure]) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "nodes": point.nodes,
        "gpus": point.gpus,
        "figures": [
            {"figure": str(figure), **_interval_data(point.figure(index))} for index, figure in enumerate(figures)
        ],
        "gpu_allocated": _interval_data(point.allocated),
        "gpu_hours": _interval_data(point.gpu_hours),
        "usd_held": rounded(point.usd_held),
        "usd_month": rounded(point.usd_month),
    }


def _interval_data(found: Interval | None) -> dict[str, Any]:
    """Without a mean where jobs never start."""
    if found is None or not isfinite(found.mean):
        return {"mean": None, "low": None, "high": None, "seeds": None}
    return {
        "mean": rounded(found.mean),
        "low": rounded(found.low),
        "high": rounded(found.high),
        "seeds": found.count,
    }
