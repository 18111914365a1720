"""Two futures of a State that was saved: of a journal, a snapshot, or a server's debug bundle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from phalanx.cli.client import NotFound, Refused
from phalanx.cli.files import text_of
from phalanx.cli.output import Output
from phalanx.cli.saved import state_from
from phalanx.cli.what_if_live import Changes, show_futures
from phalanx.cli.when import span
from phalanx.engine.fold import snapshot
from phalanx.engine.state.state import State
from phalanx.server.planner.answers import answer
from phalanx.server.planner.questions import Foresee
from phalanx.simulate.plugins import resolve_policy
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job


def what_if_state(path: str, changes: Changes, output: Output) -> None:
    """Follows both futures as the server would have, and prints them."""
    count, like = changes.nodes()
    state = state_from(path)
    policy = resolve_policy(changes.policy) if changes.policy else ""
    question = Foresee(list(_jobs(changes.jobs, state)), list(changes.fail), policy, count, like)
    now_ms = state.now
    # A State is used up by its future, so the other one is of a copy.
    copy = snapshot.load(snapshot.dump(state))
    base, changed = _future(Foresee(), copy, path), _future(question, state, path)
    show_futures(base, changed, lambda at_ms: f"{span(at_ms - now_ms)} later", output)


def _jobs(paths: tuple[str, ...], state: State) -> Iterator[Job]:
    types = tuple(dict.fromkeys(node.gpu_type for node in state.cluster.nodes if node.gpu_type))
    for path in paths:
        levels, tiers = state.cluster.levels, state.cluster.storage_tiers
        job = read_job(text_of(path), path, now_ms=state.now, gpu_types=types, levels=levels, tiers=tiers)
        if job.duration_ms is None:
            click.echo(f"note: {path} gives no duration: the job is taken to run for ever", err=True)
        yield job


def _future(question: Foresee, state: State, path: str) -> dict[str, Any]:
    reply = answer(question, state)
    told: dict[str, Any] = msgspec.json.decode(reply.body)
    if reply.status >= 400:
        raise (NotFound if reply.status == 404 else Refused)(f"{path}: {told['message']}")
    return told
