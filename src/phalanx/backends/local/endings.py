"""What an attempt has ended as, where its shepherd cannot say it, and answers as events."""

from __future__ import annotations

from phalanx.backends.live import Adopted
from phalanx.backends.local.attempt_files import Answer, AttemptState, Ending
from phalanx.backends.local.supervised import SupervisedAttempt
from phalanx.protocol.action import ActionId, Repartition, Start, Stop
from phalanx.protocol.event import Done, Event, Failed, Outcome

OUTCOMES = {"succeeded": Outcome.SUCCEEDED, "failed": Outcome.FAILED, "lost": Outcome.LOST}
"""Endings that no action asked for."""


LOST = Ending(outcome="lost", exit_code=0, reason="lost: what looked after it was killed, or the machine was restarted")


STOPPED = Ending(outcome="stopped", exit_code=0, reason="it was stopped before it began")


UNASKED = "lost: it was stopped after the backup from which the store was restored"


def unbegun(attempt_process: SupervisedAttempt) -> AttemptState:
    """Puts down that a shepherd never came up: its start failed, which is tried again after a pause."""
    order = attempt_process.folder.order()
    if order is None:
        return attempt_process.folder.close([], LOST)
    reason = f"its shepherd did not come up; {attempt_process.folder.path}/shepherd.log may say why"
    failed = Answer(term=order["term"], seq=order["seq"], ok=False, reason=reason, retryable=True, node="")
    return attempt_process.folder.close([failed], Ending(outcome="unstarted", exit_code=0, reason=reason))


def event_of(job: str, attempt: int, answer: Answer) -> Event:
    action = ActionId(answer["term"], job, attempt, answer["seq"])
    if answer["ok"]:
        return Done(action)
    return Failed(action, answer["reason"], answer["retryable"], answer["node"])


def is_asked_for(adopted: Adopted, state: AttemptState) -> bool:
    """Whether the State hears of the end of an attempt: it ended by itself, or as the answer to what is in flight."""
    if state["ending"] is None or state["ending"]["outcome"] in OUTCOMES:
        return True
    failed = {answer["seq"] for answer in state["answers"] if not answer["ok"]}
    return any(isinstance(action, Stop) or action.id.seq in failed for action in adopted.in_flight)


def awaits_start(adopted: Adopted) -> bool:
    """Whether it is on its way to its start."""
    return any(isinstance(action, Start | Repartition) for action in adopted.in_flight)
