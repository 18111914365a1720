"""What a planner can be asked, and its answer."""

from __future__ import annotations

import msgspec

from phalanx.cluster.cluster import Cluster
from phalanx.workload.job import Job


class Why(msgspec.Struct, frozen=True, tag=True):
    """Why is a job where it is, and when will it start? Asked by a user that sees some queues, with all below."""

    job: str
    queues: list[str]


class ExpectStart(msgspec.Struct, frozen=True, tag=True):
    """When will a job start that was just submitted?"""

    job: str


class PlanJobs(msgspec.Struct, frozen=True, tag=True):
    """What would become of jobs that were submitted now? Asked by a user that sees some queues, with all below, and
    has `roles` in the queues of the jobs, one each; none where no role matters.
    """

    jobs: list[Job]
    queues: list[str]
    roles: list[str] = []


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
    """For which jobs are devices reserved from a moment on?"""


class ListUse(msgspec.Struct, frozen=True, tag=True):
    """What do queues have of what they are allotted, and how much of their budgets have they used?"""


class TakeSnapshot(msgspec.Struct, frozen=True, tag=True):
    """The State itself, as bytes, without the values of jobs' variables."""


class HideValues(msgspec.Struct, frozen=True, tag=True):
    """What is a snapshot without the values of jobs' variables, with the last link of a digest that goes with it?"""

    snapshot: bytes
    link: bytes


class DrawPicture(msgspec.Struct, frozen=True, tag=True):
    """What did the view tell at a moment? Answered with the folder of the picture."""


Question = (
    Why
    | ExpectStart
    | PlanJobs
    | Foresee
    | Differ
    | DifferSettings
    | ListReservations
    | ListUse
    | TakeSnapshot
    | HideValues
    | DrawPicture
)


CHEAP = (Why, ExpectStart, ListReservations, ListUse)
"""Questions that are answered in a moment; all the rest ponder a decision, a future or the whole State."""


class Asked(msgspec.Struct, frozen=True):
    """A question as it comes to the planner: of which user, whether it is soon answered, and the question itself. One
    about the past is asked of the State after `seq`, at `at_ms`.
    """

    user: str
    cheap: bool
    question: msgspec.Raw
    seq: int = -1
    at_ms: int = 0


class Reply(msgspec.Struct, frozen=True):
    """An answer: JSON, or bytes for a snapshot. A status of 400 or more comes with an error."""

    status: int
    body: bytes


_question: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_asked = msgspec.msgpack.Decoder(Asked)
_reply = msgspec.msgpack.Decoder(Reply)


def asked_by(user: str, question: Question, seq: int = -1, at_ms: int = 0) -> Asked:
    """A question of a user, about the present or the moment after a record."""
    cheap = isinstance(question, CHEAP) and seq < 0
    return Asked(user, cheap, msgspec.Raw(msgspec.msgpack.encode(question)), seq, at_ms)


def asked_of(content: bytes) -> Asked:
    """What was asked, from its bytes. The question itself is not looked at."""
    return _asked.decode(content)


def question_of(asked: Asked) -> Question:
    """The question itself."""
    return _question.decode(asked.question)


def reply_of(content: bytes) -> Reply:
    """A reply from its bytes."""
    return _reply.decode(content)


def encoded(message: Asked | Reply) -> bytes:
    """A question or reply as bytes."""
    return msgspec.msgpack.encode(message)
