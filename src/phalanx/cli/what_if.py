"""`phalanx what-if`: two futures of the live server or of a saved run, as it is and with something happening now."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Any

import click
import msgspec

from phalanx.cli.complete import policy_names
from phalanx.cli.exit import Exit
from phalanx.cli.files import text_of
from phalanx.cli.output import Column, Output, as_json, as_yaml, cell, emit_parts, output_option
from phalanx.cli.runs import measure_columns, note_never_fit, one_policy, until_after
from phalanx.cli.saved import Kind, kind_of, run_from
from phalanx.cli.state_file import state_option
from phalanx.cli.what_if_live import Changes, what_if_live
from phalanx.cluster.cluster import Cluster, Health, Node
from phalanx.cluster.formats.limits import NODES_MAX
from phalanx.cluster.place import UnknownPlace, nodes_at
from phalanx.engine.why.explain import explain
from phalanx.errors import PhalanxError
from phalanx.protocol.event import ClusterChanged, Event, JobSubmitted, NodeHealthChanged, PolicyChanged
from phalanx.simulate.figures.result import Result
from phalanx.simulate.figures.spread import rounded
from phalanx.simulate.plugins import resolve_policy
from phalanx.simulate.simulation import COUNT, Simulation
from phalanx.simulate.studies.batch import carry_on, naming
from phalanx.simulate.studies.table import comparison_rows, duration_text
from phalanx.simulate.world.work import Work
from phalanx.words.reason import because_in
from phalanx.workload.after import bound, by_dependency
from phalanx.workload.array import members
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job

AS_IT_IS, WHAT_IF = "as it is", "what if"
OF_THE_CLUSTER = ("allocated", "fragmentation")
FUTURE = Column("policy", "FUTURE")


class WhatIfError(PhalanxError):
    """Something that cannot happen to a saved run."""


class NoSuchNode(PhalanxError):  # noqa: N818
    """The cluster of a saved run has no such node."""

    exit_code = Exit.NOT_FOUND


@click.command("what-if")
@state_option
@click.option(
    "--fail",
    "fail",
    multiple=True,
    metavar="PLACE",
    help="Assume that a node fails now, or all of a rack or other domain: n3, rack:r3; repeatable.",
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="FILE",
    help="Assume that the job of this file is submitted now; repeatable.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    shell_complete=policy_names,
    metavar="NAME",
    help="Assume that this policy decides from now on.",
)
@click.option(
    "--add-nodes",
    metavar="N[:NODE]",
    help="Assume N more nodes from now on, equal to NODE. Default: equal to the most common kind.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="With a saved run: end both forecasts at this virtual time. Default: the end of each.",
)
@output_option
def what_if(
    state_path: str | None,
    fail: tuple[str, ...],
    jobs: tuple[str, ...],
    policies: tuple[str, ...],
    add_nodes: str | None,
    until: str | None,
    output: Output,
) -> None:
    """Compare two forecasts of the live server or of a saved state: without and with a change that happens now.

    A change is a node or a whole rack that fails, added nodes, a submitted job, or another policy. Nothing changes on
    the server.
    """
    policy = one_policy(policies, "what-if shows one future beside that as it is")
    if not fail and not jobs and policy is None and add_nodes is None:
        raise click.UsageError("Say what happens: --fail PLACE, --job FILE, --policy NAME or --add-nodes N.")
    if state_path is None or kind_of(state_path) is not Kind.RUN:
        if until is not None:
            raise click.UsageError("--until is for saved runs: the futures of a server are followed to their end.")
        changes = Changes(fail, jobs, policy, add_nodes)
        if state_path is None:
            what_if_live(changes, output)
        else:
            from phalanx.cli.what_if_state import what_if_state

            what_if_state(state_path, changes, output)
        return
    as_it_is, other = run_from(state_path), run_from(state_path)
    until_ms = until_after(other, until, state_path)
    now_s = other.now_ms / 1000
    events = [*_failures(other, fail), *_other_policy(policy), *_more_nodes(other, add_nodes)]
    submitted = _known_jobs(other, jobs)
    with naming(policy or other.setup.policy):
        other.happen(*events, *map(JobSubmitted, submitted))
    before, after = (carry_on(each, each.setup.policy, perf_counter(), until_ms) for each in (as_it_is, other))
    _show(Difference(before, after, submitted, now_s, partial(_why, other), bool(fail or add_nodes)), output)


def _failures(simulation: Simulation, words: Sequence[str]) -> list[Event]:
    if words and simulation.setup.placement == COUNT:
        raise WhatIfError("--fail: the run takes its cluster as one number of GPUs: it has no nodes that could fail")
    try:
        failing = nodes_at(simulation.cluster, words)
    except UnknownPlace as unknown:
        raise NoSuchNode(f"--fail: {unknown}") from None
    return [NodeHealthChanged(node, Health.FAILED, "what if") for node in failing]


def _other_policy(policy: str | None) -> list[Event]:
    return [PolicyChanged(resolve_policy(policy))] if policy is not None else []


def _more_nodes(simulation: Simulation, text: str | None) -> list[Event]:
    """The cluster with so many more nodes, as `N` or `N:NODE` says."""
    if text is None:
        return []
    cluster = simulation.cluster
    count, _, like = text.partition(":")
    if not count.isdecimal() or not 1 <= int(count) <= NODES_MAX:
        raise WhatIfError(f"--add-nodes {text}: expected a number from 1 to {NODES_MAX}, or N:NODE such as 8:n0")
    if simulation.setup.placement == COUNT:
        pool = cluster.nodes[0]
        return [ClusterChanged(replace(cluster, nodes=(replace(pool, gpus=pool.gpus + int(count)),)))]
    model = _node_like(cluster, like)
    taken = simulation.run.state.topology.number
    names = (name for i in itertools.count(1) if (name := f"{model.name}-more{i}") not in taken)
    more = (replace(model, name=name) for name in itertools.islice(names, int(count)))
    return [ClusterChanged(replace(cluster, nodes=(*cluster.nodes, *more)))]


def _node_like(cluster: Cluster, name: str) -> Node:
    """The node of a name; without one, the first of those that there are most of."""
    if not name:
        kinds = Counter((node.gpus, node.gpu_type, node.cpus_milli, node.memory_mb) for node in cluster.nodes)
        (most, _), *_ = kinds.most_common(1)
        return next(
            node for node in cluster.nodes if (node.gpus, node.gpu_type, node.cpus_milli, node.memory_mb) == most
        )
    for node in cluster.nodes:
        if node.name == name:
            return node
    raise NoSuchNode(f"--add-nodes: there is no node {name!r} in the cluster {cluster.name!r}")


def _known_jobs(simulation: Simulation, paths: Sequence[str]) -> list[Job]:
    """The jobs of some files, under ids of their own, made known to the virtual world; the awaited one is first."""
    jobs: list[Job] = []
    numbers = [int(id_) for job in simulation.works if (id_ := job.partition(".")[0]).isdecimal()]
    for number, path in enumerate(paths, start=max(numbers, default=0) + 1):
        jobs += _read(simulation, path, str(number))
    try:
        jobs = by_dependency(bound(jobs))
    except ValueError as error:
        raise WhatIfError(f"--job: {error}") from error
    jobs = [simulation.setup.costs.charge(job) for job in jobs]
    for job in jobs:
        simulation.works[job.id] = Work(job.duration_ms, job=job)
    return jobs


def _read(simulation: Simulation, path: str, number: str) -> tuple[Job, ...]:
    cluster = simulation.cluster
    types = tuple(dict.fromkeys(node.gpu_type for node in cluster.nodes if node.gpu_type))
    read = read_job(text_of(path), path, number, simulation.now_ms, types, cluster.levels, cluster.storage_tiers)
    if read.duration_ms is None:
        click.echo(f"note: {path} gives no duration: the job is taken to run for ever", err=True)
    return members(read)


def _why(simulation: Simulation, job: str) -> str:
    refused = simulation.run.refused.get(job)
    if refused is not None:
        return refused.why
    return because_in(simulation.run.state, explain(simulation.run.state, job))


@dataclass(frozen=True, slots=True)
class Difference:
    """Two futures from one moment on, the jobs that are only in the second, and what tells why one waits."""

    as_it_is: Result
    what_if: Result
    submitted: Sequence[Job]
    now_s: float
    why: Callable[[str], str]
    is_resized: bool = False

    def futures(self) -> list[Result]:
        """Both, named by what they are."""
        named = ((AS_IT_IS, self.as_it_is), (WHAT_IF, self.what_if))
        return [msgspec.structs.replace(result, summary=result.summary | {"policy": name}) for name, result in named]

    @property
    def unlike(self) -> tuple[str, ...]:
        """Shares of the cluster, where only one of the futures has more or fewer nodes."""
        return OF_THE_CLUSTER if self.is_resized else ()

    def jobs(self) -> list[dict[str, object]]:
        """What becomes of the jobs that are submitted."""
        found = {job.job_id: job for job in self.what_if.jobs}
        return [
            {
                "job_id": job.id,
                "name": job.name,
                "state": found[job.id].state,
                "start_s": found[job.id].start_s,
                "end_s": found[job.id].end_s,
                "wait_s": found[job.id].wait_s,
                "why": self.why(job.id) if found[job.id].start_s is None else "",
            }
            for job in self.submitted
        ]

    def delays(self) -> dict[str, object]:
        """How many of the other jobs end later or sooner, and by how much in the mean; None cannot be told."""
        ends = {job.job_id: job.end_s for job in self.as_it_is.jobs}
        delays_s = [
            job.end_s - before_s
            for job in self.what_if.jobs
            if job.end_s is not None and (before_s := ends.get(job.job_id)) is not None
        ]
        later, sooner = [each for each in delays_s if each > 0], [-each for each in delays_s if each < 0]
        return {
            "later": len(later),
            "later_mean_s": rounded(fmean(later)) if later else None,
            "sooner": len(sooner),
            "sooner_mean_s": rounded(fmean(sooner)) if sooner else None,
        }


def _show(difference: Difference, output: Output) -> None:
    if output not in ("json", "yaml"):
        _tell(difference, output)
        return
    data = {
        "now_s": difference.now_s,
        "as_it_is": difference.as_it_is.summary,
        "what_if": difference.what_if.summary,
        "jobs": difference.jobs(),
        "others": difference.delays(),
    }
    click.echo(as_json(data) if output == "json" else as_yaml(data), nl=output == "json")


def _tell(difference: Difference, output: Output) -> None:
    futures = difference.futures()
    emit_parts(
        [row.texts() for row in comparison_rows(futures, difference.unlike)],
        (FUTURE, *measure_columns(futures)),
        output,
    )
    if output == "name":
        return
    delays = difference.delays()
    parts = [
        f"{delays[way]:,} {way}" + (f" ({duration_text(mean)} in the mean)" if isinstance(mean, float) else "")
        for way in ("later", "sooner")
        for mean in (delays[f"{way}_mean_s"],)
    ]
    click.echo(f"\nFrom {duration_text(difference.now_s)} of virtual time on; other jobs end: {', '.join(parts)}.")
    for job in difference.jobs():
        click.echo(_fate(job, difference.now_s))
    note_never_fit([difference.what_if])


def _fate(job: dict[str, Any], now_s: float) -> str:
    name = f"job {job['job_id']}" + (f" ({cell(job['name'])})" if job["name"] else "")
    if job["start_s"] is None:
        return f"{name} does not start: {job['why']}"
    start, wait = duration_text(job["start_s"]), duration_text(job["start_s"] - now_s)
    end = f"ends at {duration_text(job['end_s'])}" if job["end_s"] is not None else f"is {job['state']} at the end"
    return f"{name} starts at {start}, {wait} from now, and {end}"
