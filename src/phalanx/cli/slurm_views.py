"""`phalanx squeue`, `sinfo` and `scancel`: what Slurm's users type, over the jobs and nodes of phalanx."""

from __future__ import annotations

import time
from typing import Any

import click

from phalanx.cli.changes import change_jobs
from phalanx.cli.client import connect
from phalanx.cli.job_rows import LIVE

JOBS_MAX = 100_000
STATES = {"waiting": "PD", "starting": "CF", "running": "R", "suspended": "S", "stopping": "CG"}
ENDED = {"succeeded": "CD", "failed": "F", "cancelled": "CA"}
OF_SLURM = {
    "PD": "waiting",
    "PENDING": "waiting",
    "R": "running",
    "RUNNING": "running",
    "CF": "starting",
    "S": "suspended",
    "SUSPENDED": "suspended",
    "CG": "stopping",
    "COMPLETING": "stopping",
    "CD": "succeeded",
    "COMPLETED": "succeeded",
    "F": "failed",
    "FAILED": "failed",
    "CA": "cancelled",
    "CANCELLED": "cancelled",
    "CONFIGURING": "starting",
}
REASONS = {
    "gpus": "Resources",
    "amount": "Resources",
    "topology": "Resources",
    "fragmented": "Resources",
    "behind": "Priority",
    "dependency": "Dependency",
    "dependency_failed": "DependencyNeverSatisfied",
    "held": "JobHeldUser",
    "begin_time": "BeginTime",
    "array_limit": "JobArrayTaskLimit",
    "quota": "QOSGrpGRES",
    "never_fits": "BadConstraints",
    "unhealthy": "ReqNodeNotAvail",
    "reserved": "Reservation",
    "budget": "AssocGrpGRESMinutes",
    "making_room": "Priority",
}
"""Slurm's nearest word; `phalanx why ID` says more."""

NODE_STATES = {"healthy": "idle", "spare": "resv", "suspect": "down*", "draining": "drain", "failed": "down"}
QUEUE_LINE = "{:>18} {:>9.9} {:>8.8} {:>8.8} {:>2} {:>10} {:>6} {}"
NODES_LINE = "{:<12} {:>5} {:>6} {}"


@click.command()
@click.option("-u", "--user", default="", help="Only jobs of this user.")
@click.option("--me", is_flag=True, help="Only your own jobs.")
@click.option("-j", "--jobs", default="", metavar="ID[,…]", help="Only these jobs.")
@click.option("-t", "--states", default="", metavar="STATE[,…]", help="Only jobs in these states, such as PD,R or all.")
@click.option("-p", "--partition", default="", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("-n", "--name", default="", help="Only jobs with this name.")
@click.option("-h", "--noheader", is_flag=True, help="Print no header.")
def squeue(user: str, me: bool, jobs: str, states: str, partition: str, name: str, noheader: bool) -> None:
    """List pending and running jobs in the columns of Slurm's squeue. The partition is the queue."""
    client = connect()
    if me:
        user = client.get("/me")["user"]
    wanted = {each for each in jobs.split(",") if each}
    if not noheader:
        click.echo(QUEUE_LINE.format("JOBID", "PARTITION", "NAME", "USER", "ST", "TIME", "NODES", "NODELIST(REASON)"))
    for job in client.items("/jobs", JOBS_MAX, state=_states(states), queue=partition, user=user, name=name):
        if not wanted or job["id"] in wanted or job.get("array_of") in wanted:
            click.echo(QUEUE_LINE.format(*_cells(job)))


@click.command()
@click.option("-N", "--Node", "by_node", is_flag=True, help="A line for each node.")
@click.option("-n", "--nodes", "wanted", default="", metavar="NODE[,…]", help="Only these nodes.")
@click.option("-R", "--list-reasons", "reasons", is_flag=True, help="List why nodes are down or drained.")
@click.option("-h", "--noheader", is_flag=True, help="Print no header.")
def sinfo(by_node: bool, wanted: str, reasons: bool, noheader: bool) -> None:
    """List nodes by GPU type and state, in the columns of Slurm's sinfo. GPUS counts those of each node."""
    names = {each for each in wanted.split(",") if each}
    nodes = [node for node in connect().items("/nodes", JOBS_MAX) if not names or node["name"] in names]
    if reasons:
        for node in nodes:
            if node.get("reason"):
                click.echo(f"{node['reason']:<50} {node['name']}")
        return
    if not noheader:
        click.echo(NODES_LINE.format("GPUS", "NODES", "STATE", "NODELIST"))
    groups: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        kind = f"{node.get('gpu_type') or 'cpu'}:{node['gpus']}"
        groups.setdefault((kind, _state_of(node), node["name"] if by_node else ""), []).append(node["name"])
    for (kind, state, _), members in groups.items():
        click.echo(NODES_LINE.format(kind, len(members), state, ",".join(members)))


@click.command()
@click.argument("jobs", nargs=-1, metavar="[ID]...")
@click.option("-n", "--name", default="", help="Cancel jobs with this name.")
@click.option("-u", "--user", default="", help="Cancel the jobs of this user.")
@click.option("-t", "--state", default="", metavar="STATE", help="Of those, only the ones in this state, such as PD.")
def scancel(jobs: tuple[str, ...], name: str, user: str, state: str) -> int:
    """Cancel the jobs ID..., or those of a name or user. No other signals are sent."""
    if name or user or (state and not jobs):
        found = connect().items("/jobs", JOBS_MAX, state=_states(state), user=user, name=name)
        jobs = (*jobs, *(job["id"] for job in found))
    elif not jobs:
        raise click.UsageError("expected ID, --name or --user")
    return change_jobs(jobs, "cancel", "name") if jobs else 0


def _states(text: str) -> str:
    if text.lower() == "all":
        return ""
    words = [each.strip().upper() for each in text.split(",") if each.strip()]
    for word in words:
        if word not in OF_SLURM:
            raise click.UsageError(f"state {word}: expected some of {', '.join(OF_SLURM)}")
    return ",".join(dict.fromkeys(OF_SLURM[word] for word in words)) or LIVE


def _cells(job: dict[str, Any]) -> tuple[object, ...]:
    state = STATES.get(job["state"]) or ENDED.get(job["state"], job["state"])
    nodes = job.get("nodes") or []
    where = ",".join(nodes) if nodes else f"({REASONS.get(job.get('reason') or '', job.get('reason') or 'None')})"
    return job["id"], job["queue"], job.get("name") or "", job.get("user") or "", state, _ran(job), len(nodes), where


def _ran(job: dict[str, Any]) -> str:
    """Days, hours, minutes and seconds since the job was last started, as Slurm writes them."""
    began_ms, ended_ms = job.get("started_ms"), job.get("ended_ms")
    if not began_ms or job["state"] == "waiting":
        return "0:00"
    seconds = max(int(((ended_ms or time.time() * 1000) - began_ms) // 1000), 0)
    days, rest = divmod(seconds, 86_400)
    hours, minutes = rest // 3_600, rest // 60 % 60
    if not days and not hours:
        return f"{minutes}:{rest % 60:02}"
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest % 60:02}"


def _state_of(node: dict[str, Any]) -> str:
    state = NODE_STATES.get(node["health"], node["health"])
    used = node.get("gpus_used") or 0
    if state != "idle":
        return "drng" if state == "drain" and node.get("jobs") else state
    return "alloc" if used and used >= node["gpus"] else "mix" if used or node.get("jobs") else "idle"
