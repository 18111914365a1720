"""Two futures of a State that was saved: of a journal, a snapshot, or a server's debug bundle."""

from __future__ import annotations

from collections.abc import Iterator

import click

from phalanx.cli.output import Output
from phalanx.cli.plan_state import answered, jobs_for
from phalanx.cli.saved import state_from
from phalanx.cli.what_if_live import Changes, show_futures
from phalanx.cli.when import span
from phalanx.engine.fold import snapshot
from phalanx.engine.state.state import State
from phalanx.server.planner.questions import Foresee
from phalanx.simulate.plugins import resolve_policy
from phalanx.workload.job import Job


def what_if_state(path: str, changes: Changes, output: Output) -> None:
    """Follows both futures as the server would have, and prints them."""
    count, like = changes.nodes()
    state = state_from(path)
    policy = resolve_policy(changes.policy) if changes.policy else ""
    question = Foresee(list(_with_durations(changes.jobs, state)), list(changes.fail), policy, count, like)
    now_ms = state.now
    # A State is used up by its future, so the other one is of a copy.
    copy = snapshot.load(snapshot.dump(state))
    base, changed = answered(Foresee(), copy, path), answered(question, state, path)
    show_futures(base, changed, lambda at_ms: f"{span(at_ms - now_ms)} later", output)


def _with_durations(paths: tuple[str, ...], state: State) -> Iterator[Job]:
    for path, job in zip(paths, jobs_for(paths, state), strict=True):
        if job.duration_ms is None:
            click.echo(f"note: {path} gives no duration: the job is taken to run for ever", err=True)
        yield job
