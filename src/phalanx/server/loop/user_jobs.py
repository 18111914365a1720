"""The jobs of a user whose account changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlalchemy import Connection, select

from phalanx.engine.state.records import JobState
from phalanx.engine.state.state import State
from phalanx.protocol.event import JobCancelled, JobHeld
from phalanx.server.refusal import Refusal
from phalanx.server.store.tables import users


def need_no_jobs_of(user: str, state: State, connection: Connection) -> None:
    """Refuses a new user of a deleted one's name while jobs of that one go on: they would be taken for its own."""
    going = [held.job.id for held in state.jobs.values() if held.job.user == user and not held.state.final]
    if going and not _is_user(user, connection):
        raise Refusal(
            "conflict",
            f"jobs of a deleted user {user!r} go on ({', '.join(going[:3])}): cancel them, or take another name",
        )


def _is_user(name: str, connection: Connection) -> bool:
    return connection.execute(select(users.c.name).where(users.c.name == name)).scalar() is not None


def of_waiting(
    user: str, state: State, event_for: Callable[[str], JobCancelled | JobHeld]
) -> Iterator[JobCancelled | JobHeld]:
    """What is to happen to the jobs of a user that have not started. Those that run go on."""
    for held in list(state.jobs.values()):
        event = event_for(held.job.id)
        is_held = held.held and isinstance(event, JobHeld)
        if held.job.user == user and held.state is JobState.WAITING and not is_held:
            yield event
