"""Where jobs would go in a State that was saved: of a journal, a snapshot, or a server's debug bundle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from phalanx.cli.client import NotFound, Refused
from phalanx.cli.files import text_of
from phalanx.cli.output import Output
from phalanx.cli.plan_live import show_planned
from phalanx.cli.saved import state_from
from phalanx.engine.state.state import State
from phalanx.server.planner.answers import answer
from phalanx.server.planner.questions import PlanJobs, Question
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job

ALL_QUEUES = [""]


def plan_state(path: str, files: tuple[str, ...], output: Output) -> None:
    """Decides as the server would have at the last moment of the State, and prints it."""
    state = state_from(path)
    now = state.now
    told = answered(PlanJobs(list(jobs_for(files, state)), ALL_QUEUES), state, path)
    show_planned(told["items"], now, output)


def jobs_for(paths: tuple[str, ...], state: State) -> Iterator[Job]:
    """The jobs of some files, as they would be submitted at the last moment of a State."""
    types = tuple(dict.fromkeys(node.gpu_type for node in state.cluster.nodes if node.gpu_type))
    levels, tiers = state.cluster.levels, state.cluster.storage_tiers
    for path in paths:
        yield read_job(text_of(path), path, now_ms=state.now, gpu_types=types, levels=levels, tiers=tiers)


def answered(question: Question, state: State, path: str) -> dict[str, Any]:
    """What the planner says of a State, which is used up by it; raises what it refuses."""
    reply = answer(question, state)
    told: dict[str, Any] = msgspec.json.decode(reply.body)
    if reply.status >= 400:
        raise (NotFound if reply.status == 404 else Refused)(f"{path}: {told['message']}")
    return told
