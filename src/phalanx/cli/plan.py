"""`phalanx plan`: the real decision for some jobs on a cluster, with nothing changed."""

from __future__ import annotations

from collections import Counter

import click

from phalanx.cli.files import cluster_from, jobs_from, save_journal
from phalanx.cli.map import draw
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.plan_live import plan_live
from phalanx.engine import deadline
from phalanx.engine.explain import explain
from phalanx.engine.state import State
from phalanx.errors import PhalanxError
from phalanx.placement.fragmentation import fragmentation, largest_gang
from phalanx.placement.ranks import communication
from phalanx.planning import plan as decide_for
from phalanx.simulate.plugins import resolve_policy
from phalanx.words import because, deadline_words
from phalanx.workload.job import Job

COLUMNS = (
    Column("job"),
    Column("name"),
    Column("state"),
    Column("gpus"),
    Column("nodes"),
    Column("communication_ms", "COMM MS"),
    Column("why"),
)


class Refused(PhalanxError):  # noqa: N818
    """A job or cluster that the engine does not take."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--cluster", "cluster_path", metavar="FILE", help="Plan on this cluster, empty. Default: the live server."
)
@click.option("--policy", default="", metavar="NAME[:key=value,…]", help="Or ./mine.py:NAME. Default: the cluster's.")
@click.option("--save", metavar="FILE", help="Write the state after the plan, for `phalanx why --state`.")
@output_option
def plan(files: tuple[str, ...], cluster_path: str | None, policy: str, save: str | None, output: Output) -> None:
    """Decide where the jobs of FILE... would go on a cluster, in the order given, and change nothing."""
    if cluster_path is None:
        if policy or save:
            raise click.UsageError("--policy and --save go with --cluster; the live server has its own")
        plan_live(files, output)
        return
    cluster = cluster_from(cluster_path)
    jobs = [job for path in files for job in jobs_from(path, 1 + files.index(path), cluster)]
    try:
        state, journal = decide_for(cluster, jobs, resolve_policy(policy or cluster.policy))
    except ValueError as error:
        raise Refused(str(error)) from error
    emit([_row(state, job) for job in jobs], COLUMNS, output)
    if output in ("table", "wide"):
        click.echo()
        for line in draw(state):
            click.echo(line)
        click.echo(f"\n{_rest(state, jobs)}")
        for line in (deadline_words(state, job.id) for job in jobs):
            if line:
                click.echo(line)
    if save:
        save_journal(journal, save)


def _rest(state: State, jobs: list[Job]) -> str:
    """What is left, and how much of it the jobs just planned could not use if they came again."""
    capacity = state.capacity
    mix = Counter(task for job in jobs for task in state.record(job.id).tasks.values() if task.gpus)
    lost = fragmentation(state.fit, mix, jobs[0])
    free, whole = capacity.free_gpus(capacity.open), largest_gang(capacity, max(capacity.gpus_max, 1))
    return (
        f"{free} of {state.cluster.gpus} GPUs are free; the largest gang that fits now has {whole} tasks of "
        f"{capacity.gpus_max}; {lost:.0%} of what is free is of no use to such jobs"
    )


def _row(state: State, job: Job) -> dict[str, object]:
    attempt = state.record(job.id).attempt
    placement = attempt.placement if attempt is not None else None
    cost = communication(state.topology, job, placement) if placement is not None else None
    return {
        "job": job.id,
        "name": job.name,
        "state": state.record(job.id).state.value,
        "gpus": job.gang.gpus_max,
        "nodes": list(placement.nodes) if placement is not None else [],
        "communication_ms": cost.total_ms if cost is not None else None,
        "why": because(explain(state, job.id)) if placement is None else "",
        "deadline": outlook._asdict() if (outlook := deadline.outlook(state, state.record(job.id))) else None,
        "slots": [
            {"rank": slot.rank, "role": slot.role, "node": slot.node, "devices": list(slot.devices)}
            for slot in (placement.slots if placement is not None else ())
        ],
    }
