"""`phalanx demo`: a small cluster, a few jobs, a failing node, and what the engine decides, drawn in the terminal."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

import click

from phalanx.cli.map import draw, letters_of
from phalanx.cli.output import say
from phalanx.cluster.cluster import Health
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.turn import verify
from phalanx.engine.why.explain import explain
from phalanx.protocol.event import Event, JobSubmitted, NodeHealthChanged
from phalanx.protocol.plan import Plan
from phalanx.simulate.run import Run
from phalanx.simulate.world.costs import NO_COSTS
from phalanx.simulate.world.virtual import VirtualBackend
from phalanx.words.reason import because
from phalanx.workload.array import members
from phalanx.workload.formats.native import read_job

START_MS, STOP_MS = 2_000, 10_000
FAILURE_MS = 60_000
END_MS = 120_000
INDENT = " " * len("   1.0 s A  ")
FAILING = "a1"


@click.command()
def demo() -> None:
    """Show the decisions for five submissions on a small cluster where a node fails, and why jobs stay pending."""
    run = _run()
    say("Eight nodes of eight H100 in two racks. Five submissions arrive a second apart; policy: priority.\n")
    told_failure = False
    while run.state.now < END_MS:
        plan = run.step()
        if plan is None:
            break
        if run.state.now >= FAILURE_MS and not told_failure:
            told_failure = True
            say(f"{_time(FAILURE_MS)} node {FAILING} fails; the jobs there are told to stop (small letters).")
            _show(run)
            click.echo()
        _tell(run, plan)
    _show(run)
    verify(run.journal)
    records = len(run.journal.records)
    say(f"\n{records} records were journaled; decided again from the journal, every plan is the same.")
    say("Next: `phalanx plan --cluster examples/cluster-three-types.yaml examples/job-3d-parallel-70b.yaml`.")


def _run() -> Run:
    folder = files("phalanx.cli") / "demo_files"
    cluster = read_cluster((folder / "cluster.yaml").read_text("utf-8"), "cluster.yaml")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0].isdigit())
    arrivals: list[tuple[int, Event]] = []
    for number, name in enumerate(names, start=1):
        job = read_job((folder / name).read_text("utf-8"), name, job_id=str(number))
        arrivals.extend((number * 1000, JobSubmitted(member)) for member in members(job))
    arrivals.append((FAILURE_MS, NodeHealthChanged(FAILING, Health.FAILED, "XID 79")))
    costs = replace(NO_COSTS, start_ms=START_MS, stop_ms=STOP_MS)
    return Run.of(cluster, cluster.policy, VirtualBackend({}, costs), arrivals)


def _tell(run: Run, plan: Plan) -> None:
    state = run.state
    letters = letters_of(state)
    for claim in plan.claims:
        job = state.record(claim.job).job
        where = ", ".join(claim.placement.nodes)
        leave = "has left" if len(claim.victims) == 1 else "have left"
        waits = f", once {', '.join(claim.victims) or 'those leaving'} {leave}" if claim.waits else ""
        say(f"{_time(state.now)} {letters[claim.job]}  {_name(claim.job, job.name)}: {where}{waits}", indent=INDENT)
    for verdict in plan.verdicts:
        job = state.record(verdict.job).job
        line = because(explain(state, verdict.job))
        say(
            f"{_time(state.now)} {letters[verdict.job]}  {_name(verdict.job, job.name)} is pending: {line}",
            indent=INDENT,
        )


def _show(run: Run) -> None:
    click.echo()
    for line in draw(run.state):
        click.echo(line)


def _name(job: str, name: str) -> str:
    return f"job {job} ({name})"


def _time(now_ms: int) -> str:
    return f"{now_ms / 1000:6.1f} s"
