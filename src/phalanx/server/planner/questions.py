"""What a planner can be asked, and its answer."""

from __future__ import annotations

import msgspec

from phalanx.cluster.cluster import Cluster
from phalanx.workload.job import Job


class Why(msgspec.Struct, frozen=True, tag=True):
    """Why is a job where it is, and when will it start? Asked by somebody who sees some queues, with all below."""

    job: str
    queues: list[str]


class PlanJobs(msgspec.Struct, frozen=True, tag=True):
    """What would become of jobs that were submitted now? Asked by somebody who sees some queues, with all below."""

    jobs: list[Job]
    queues: list[str]


class Foresee(msgspec.Struct, frozen=True, tag=True):
    """How would all that waits and runs go on, with something changed or nothing?"""

    jobs: list[Job] = []
    fail: list[str] = []
    policy: str = ""
    add_nodes: int = 0
    like: str = ""


class Differ(msgspec.Struct, frozen=True, tag=True):
    """What would change with another cluster, and what would that stop?"""

    cluster: Cluster


class DifferSettings(msgspec.Struct, frozen=True, tag=True):
    """What does a file say of the queues, policy and maintenance of this cluster, and what would that change?"""

    text: str
    source: str


class ListReservations(msgspec.Struct, frozen=True, tag=True):
    """Who has been promised devices from a moment on?"""


class ListUse(msgspec.Struct, frozen=True, tag=True):
    """What do queues have of what they are allotted, and how much of their budgets have they used?"""


class TakeSnapshot(msgspec.Struct, frozen=True, tag=True):
    """The State itself, as bytes."""


Question = Why | PlanJobs | Foresee | Differ | DifferSettings | ListReservations | ListUse | TakeSnapshot


class Reply(msgspec.Struct, frozen=True):
    """An answer: JSON, or bytes for a snapshot. A status of 400 or more comes with an error."""

    status: int
    body: bytes


_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_reply = msgspec.msgpack.Decoder(Reply)


def question_of(content: bytes) -> Question:
    """A question from its bytes."""
    return _question.decode(content)


def reply_of(content: bytes) -> Reply:
    """A reply from its bytes."""
    return _reply.decode(content)


def encoded(message: Question | Reply) -> bytes:
    """A question or reply as bytes."""
    return msgspec.msgpack.encode(message)
