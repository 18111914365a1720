"""`phalanx plan`: the real decision for some jobs on a cluster, with nothing changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import click
import msgspec

from phalanx.cli.complete import policy_names
from phalanx.cli.files import check_after, cluster_from, jobs_from, save_journal
from phalanx.cli.map import draw
from phalanx.cli.output import STATE, Column, Output, emit, output_option, say
from phalanx.cli.plan_live import plan_live
from phalanx.cli.state_file import state_option
from phalanx.cli.when import moment
from phalanx.cluster.device import FULL_PERMILLE, Mode, Portion
from phalanx.engine.state.state import State
from phalanx.engine.why import deadline
from phalanx.engine.why.explain import explain
from phalanx.errors import PhalanxError
from phalanx.placement.cost import StepCost
from phalanx.placement.fragmentation import fragmentation, largest_gang
from phalanx.placement.placement import Placement, Slot
from phalanx.placement.ranks import communication, plan_for
from phalanx.planning import device_count
from phalanx.planning import plan as decide_for
from phalanx.simulate.plugins import resolve_policy
from phalanx.words.batch import batch_words
from phalanx.words.deadline import deadline_words
from phalanx.words.reason import because_in
from phalanx.workload.job import Job

COLUMNS = (
    Column("job"),
    Column("name", least=8),
    STATE,
    Column("gpus"),
    Column("asks", spare=True),
    Column("nodes", least=10),
    Column("share", wide=True),
    Column("communication_ms", "COMM MS", spare=True),
    Column("bottleneck", wide=True),
    Column("why"),
)


NOWHERE = Placement(())


class Refused(PhalanxError):  # noqa: N818
    """A job or cluster that the engine does not take."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--cluster",
    "cluster_path",
    metavar="FILE",
    help="Plan on the cluster of this file, with no jobs on it. Default: the live server.",
)
@click.option(
    "--policy",
    default="",
    shell_complete=policy_names,
    metavar="NAME[:key=value,…]",
    help="With --cluster: the policy, or ./mine.py:NAME. Default: the policy of the cluster file.",
)
@click.option(
    "--at", metavar="TIME", help="With --cluster: plan for this time: 2030-01-31T08:00Z or +2h. Default: now."
)
@click.option(
    "--save", metavar="FILE", help="With --cluster: write the state after the plan, for `phalanx why --state`."
)
@state_option
@output_option
def plan(
    files: tuple[str, ...],
    cluster_path: str | None,
    policy: str,
    at: str | None,
    save: str | None,
    state_path: str | None,
    output: Output,
) -> None:
    """Show where the jobs of FILE... would be placed, in the order given; submit nothing."""
    if cluster_path is None:
        if policy or save or at:
            raise click.UsageError("--policy, --at and --save go with --cluster; a server has its own")
        if state_path is None:
            plan_live(files, output)
            return
        from phalanx.cli.plan_state import plan_state

        plan_state(state_path, files, output)
        return
    if state_path is not None:
        raise click.UsageError("--cluster is of a cluster without jobs, --state of one with those that were there")
    at_ms = moment(at, "--at")
    cluster = cluster_from(cluster_path, at_ms)
    read = [(job, path) for number, path in enumerate(files, 1) for job in jobs_from(path, number, cluster, at_ms)]
    jobs, paths = [job for job, _ in read], {job.id: path for job, path in read}
    check_after(jobs, paths)
    try:
        state, journal = decide_for(cluster, jobs, resolve_policy(policy or cluster.policy), at_ms)
    except ValueError as error:
        raise Refused(_with_path(str(error), paths)) from error
    if save:
        # Before anything is printed: a reader that closes its pipe ends the verb.
        save_journal(journal, save)
    emit([_row(state, job) for job in jobs], COLUMNS, output)
    if output in ("table", "wide"):
        click.echo()
        for line in draw(state):
            click.echo(line)
        say(f"\n{_rest(state, jobs)}")
        for line in (words for job in jobs for words in (deadline_words(state, job.id), batch_words(job)) if words):
            say(line)


def _with_path(reason: str, paths: Mapping[str, str]) -> str:
    """What the engine says of a job that it does not take, with the file that the job is from."""
    named = re.search(r"\bjob ([0-9.]*[0-9])\b", reason)
    return f"{paths[named[1]]}: {reason}" if named is not None and named[1] in paths else reason


def _rest(state: State, jobs: list[Job]) -> str:
    """What is left, and how much of it tasks like those of the jobs just planned could use, each for itself."""
    capacity = state.capacity
    free, whole = capacity.free_gpus(capacity.open), largest_gang(capacity, max(capacity.gpus_max, 1))
    left = f"{free} of {state.cluster.gpus} GPUs {'is' if free == 1 else 'are'} free"
    if not free:
        return left
    tasks = f"{whole} {'task' if whole == 1 else 'tasks'} of {capacity.gpus_max}"
    return f"{left}, with room for {tasks}; more tasks like these could use {1 - _lost(state, jobs):.0%} of them"


def _lost(state: State, jobs: list[Job]) -> float:
    """The share of what is free that tasks like those of the jobs cannot use: each by its own job's tolerations."""
    lost = weight = 0.0
    for job in jobs:
        mix = Counter(task for task in state.record(job.id).tasks.values() if task.gpus)
        lost += fragmentation(state.fit, mix, job) * mix.total()
        weight += mix.total()
    return lost / weight if weight else 0.0


def _row(state: State, job: Job) -> dict[str, object]:
    """What is planned for one job, as docs/reference/plan.md lists it."""
    attempt = state.record(job.id).attempt
    placement = attempt.placement if attempt is not None else NOWHERE
    cost = communication(state.topology, job, placement)
    outlook = deadline.outlook(state, state.record(job.id))
    return {
        "job": job.id,
        "name": job.name,
        "state": state.record(job.id).state.value,
        "gpus": device_count(placement),
        "gpus_min": job.gang.gpus_min,
        "gpus_max": job.gang.gpus_max,
        "asks": f"{job.gang.gpus_min}-{job.gang.gpus_max}" if job.gang.elastic else str(job.gang.gpus_max),
        "nodes": list(placement.nodes),
        "share": ", ".join(dict.fromkeys(_share(slot.portion) for slot in placement.slots if slot.portion)),
        "communication_ms": cost.total_ms if cost is not None else None,
        "bottleneck": cost.bottleneck if cost is not None and cost.total_ms else None,
        "why": because_in(state, explain(state, job.id)) if state.reason(job.id) is not None else "",
        "deadline": msgspec.to_builtins(outlook._asdict()) if outlook else None,
        "slots": [_slot(slot) for slot in placement.slots],
        "communication": _communication(cost) if cost is not None else None,
        "mesh": _mesh(job, placement),
    }


def _slot(slot: Slot) -> dict[str, object]:
    return {
        "rank": slot.rank,
        "role": slot.role,
        "node": slot.node,
        "devices": list(slot.devices),
        "portion": msgspec.to_builtins(slot.portion),
    }


def _communication(cost: StepCost) -> dict[str, object]:
    """What a step spends on communication in each dimension, and how it all-reduces there."""
    return {"tp_ms": cost.tp_ms, "pp_ms": cost.pp_ms, "dp_ms": cost.dp_ms, "all_reduce": dict(cost.algorithms)}


def _mesh(job: Job, placement: Placement) -> dict[str, object] | None:
    """Which device is which rank of the job's parallel plan."""
    plan = plan_for(job, placement.gpus)
    if plan is None or not placement.mesh:
        return None
    coordinates = ((t, p, d) for d in range(plan.dp) for p in range(plan.pp) for t in range(plan.tp))
    ranks = [
        {"rank": rank, "tp": t, "pp": p, "dp": d, "node": node, "device": device}
        for rank, ((t, p, d), (node, device)) in enumerate(zip(coordinates, placement.mesh, strict=True))
    ]
    return {"tp": plan.tp, "pp": plan.pp, "dp": plan.dp, "ranks": ranks}


def _share(portion: Portion) -> str:
    """A part of a device in a few words."""
    match portion.mode:
        case Mode.MIG:
            return f"mig {portion.mig_profile}"
        case Mode.TURNS:
            return f"turn {(portion.turn or 0) + 1} of {portion.turns}"
        case mode:
            return f"{mode.value} {portion.compute_permille / FULL_PERMILLE:.0%}"
