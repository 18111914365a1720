"""What API workers and the loop say to each other, and how it is framed: a length, then one message."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.settings import Settings
from phalanx.workload.job import Job

LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = 256 << 20


class Caller(msgspec.Struct, frozen=True):
    """The caller: the user, by which token, from where."""

    user: str
    token: str = ""
    origin: str = ""


class SubmitJobs(msgspec.Struct, frozen=True, tag=True):
    """Jobs to be submitted, all or none. `key` and `body` recognise a request that is made again.

    Where many jobs differ by their names only, `jobs` has one of each kind, and `named` of every job the place of its
    kind and its name. `roles` are those of the caller in the queues of `jobs`, one each; none where no role
    matters, as where a program of ours submits.
    """

    jobs: list[Job]
    key: str = ""
    body: str = ""
    named: list[tuple[int, str]] = []
    roles: list[str] = []


class ChangeJob(msgspec.Struct, frozen=True, tag=True):
    """Cancel, hold or release a job, unless it has changed since `version`. `reason` is why one is cancelled."""

    job: str
    verb: str
    version: int | None = None
    reason: str = ""


class ChangeArray(msgspec.Struct, frozen=True, tag=True):
    """Cancel, hold or release members of an array at once, so that none starts because another was cancelled."""

    array: str
    jobs: list[str]
    verb: str
    reason: str = ""


class ResizeJob(msgspec.Struct, frozen=True, tag=True):
    """Have a role of a job have other replicas: at most so many, and at least `minimum` if that is said."""

    job: str
    replicas: int
    minimum: int | None = None
    role: str = ""
    version: int | None = None


class UpdateJobs(msgspec.Struct, frozen=True, tag=True):
    """Have pending jobs, one or the members of an array, ask for another priority, queue or times (None: no such time).

    `role` is that of the caller in the queue that they will be in.
    """

    jobs: list[str]
    array: str = ""
    priority: int | None = None
    queue: str | None = None
    times: dict[str, int | None] = {}
    role: str = ""
    version: int | None = None


class AskCheckpoint(msgspec.Struct, frozen=True, tag=True):
    """Have a running job save its work within so many milliseconds."""

    job: str
    within_ms: int


class RunBeside(msgspec.Struct, frozen=True, tag=True):
    """A user runs a command beside a task (`exec`), attaches to it or reaches a port of it (`forward`). The loop only
    writes that down.
    """

    job: str
    rank: int
    command: list[str]
    verb: str = "exec"


class Found(msgspec.Struct, frozen=True):
    """What the launcher of an attempt has found out about one of its tasks."""

    kind: str
    task: int
    text: str
    rank: int = -1
    local_rank: int = -1


class ReportProgress(msgspec.Struct, frozen=True, tag=True):
    """What an attempt says of itself, and the incarnation of the store that started it.

    One that `tells_progress` not has only findings; what was said of the progress before still holds.
    """

    job: str
    attempt: int
    step: int = 0
    samples_per_s: float = 0.0
    durable_step: int = 0
    stop_cost_ms: int = 0
    gpu_busy: float = 0.0
    memory_gb: float = 0.0
    metrics: dict[str, float] = {}
    diverged: tuple[str, ...] = ()
    findings: list[Found] = []
    tells_progress: bool = True
    incarnation: str = ""


class ChangeNode(msgspec.Struct, frozen=True, tag=True):
    """Drain a node, or let it take work again; or only these GPUs of it, if any are said. Not if more than a share of
    the nodes would then be out of service, in whole or in part.
    """

    node: str
    health: str
    reason: str = ""
    gpus: tuple[int, ...] = ()
    share_max: float = 1.0


class ChangeCluster(msgspec.Struct, frozen=True, tag=True):
    """Have another cluster, with its queues and its policy, if its queues are still of an edition; empty is any."""

    cluster: Cluster
    queue_edition: str = ""


class ChangeSettings(msgspec.Struct, frozen=True, tag=True):
    """Have other queues, another policy or other times of maintenance on the cluster there is, likewise."""

    settings: Settings
    queue_edition: str = ""


class ChangePolicy(msgspec.Struct, frozen=True, tag=True):
    """Have another policy decide."""

    policy: str
    placement: str = ""


class KeepToldStart(msgspec.Struct, frozen=True, tag=True):
    """Keep the start that the submitter of a job was told."""

    job: str
    told_start_ms: int


class QueriedLoad(msgspec.Struct, frozen=True):
    """What Prometheus said of a query for a service; None with the problem where that is no number."""

    job: str
    query: str
    value: float | None
    problem: str = ""


class ReportLoads(msgspec.Struct, frozen=True, tag=True):
    """The loads of services that are measured by queries."""

    loads: list[QueriedLoad]


class KeepAlerts(msgspec.Struct, frozen=True, tag=True):
    """The alerts that fire now, each as rule, subject, since when, the figure behind it, and what follows."""

    firing: list[tuple[str, str, int, float, str]]


class PutUser(msgspec.Struct, frozen=True, tag=True):
    """Make a user, or change one. None leaves as it is."""

    name: str
    new: bool
    password: str | None = None
    disabled: bool | None = None
    unix_user: str | None = None


class DropUser(msgspec.Struct, frozen=True, tag=True):
    """Remove a user with all tokens and roles."""

    name: str


class PutRole(msgspec.Struct, frozen=True, tag=True):
    """Give a user a role in a queue and below; an empty role takes it away."""

    name: str
    queue: str
    role: str


class AddToken(msgspec.Struct, frozen=True, tag=True):
    """Keep a new token, of which only the digest is known here."""

    id: str
    user: str
    name: str
    digest: str
    scopes: str
    expires_ms: int | None = None
    parent: str | None = None
    """The token that it is made with, and ends with; None for one that a password was traded for."""
    session_until_ms: int | None = None
    """Of a session of a browser: when it ends at the latest; `expires_ms` is when it ends if it is not used."""


class RevokeToken(msgspec.Struct, frozen=True, tag=True):
    """Make a token worthless from now on, with all tokens that were made with it."""

    id: str


class RenewSession(msgspec.Struct, frozen=True, tag=True):
    """A session is used: have it not end for a while."""

    id: str


class RefuseLogin(msgspec.Struct, frozen=True, tag=True):
    """A password was wrong, at a log-in or (`again`) where a user has to give it once more. The loop only audits it."""

    user: str
    again: bool = False


class PutSecret(msgspec.Struct, frozen=True, tag=True):
    """Set the value of a secret; with `grants`, each a queue and a user, let these jobs use it and no others."""

    name: str
    value: str
    grants: list[tuple[str, str]] | None = None

    def __repr__(self) -> str:
        """Without the value, which belongs into no log."""
        return f"PutSecret({self.name!r})"


class DropSecret(msgspec.Struct, frozen=True, tag=True):
    """Remove a secret with its value and its grants."""

    name: str


class GrantSecret(msgspec.Struct, frozen=True, tag=True):
    """Let jobs of a queue and of a user use a secret, or not any more. Empty is every queue, or every user."""

    name: str
    queue: str
    user: str
    revoked: bool = False


Mutation = (
    SubmitJobs
    | ChangeJob
    | ChangeArray
    | ResizeJob
    | UpdateJobs
    | AskCheckpoint
    | RunBeside
    | ReportProgress
    | ChangeNode
    | ChangeCluster
    | ChangeSettings
    | ChangePolicy
    | KeepToldStart
    | KeepAlerts
    | ReportLoads
    | PutUser
    | DropUser
    | PutRole
    | AddToken
    | RevokeToken
    | RenewSession
    | RefuseLogin
    | PutSecret
    | DropSecret
    | GrantSecret
)


class Request(msgspec.Struct, frozen=True):
    """A mutation that a worker asks for, with a number of the worker's own to tell the answer by."""

    number: int
    caller: Caller
    body: Mutation


class Answer(msgspec.Struct, frozen=True, tag=True):
    """What became of a request, sent once it is durable. `body` is JSON; `repeated` says that it was done before."""

    number: int
    status: int
    body: bytes
    repeated: bool = False


class News(msgspec.Struct, frozen=True, tag=True):
    """Tells every worker how far the journal is durable."""

    seq: int


_request = msgspec.msgpack.Decoder(Request)
_message: msgspec.msgpack.Decoder[Answer | News] = msgspec.msgpack.Decoder(Answer | News)
_encoder = msgspec.msgpack.Encoder()


def framed(message: Request | Answer | News) -> bytes:
    """A message as it goes over the wire."""
    content = _encoder.encode(message)
    return LENGTH.pack(len(content)) + content


def request_of(content: bytes | memoryview) -> Request:
    """A request from its frame."""
    return _request.decode(content)


def message_of(content: bytes) -> Answer | News:
    """What the loop says, from its frame."""
    return _message.decode(content)


def frames(buffer: bytearray) -> list[bytes]:
    """Takes the whole frames out of what was received so far."""
    found: list[bytes] = []
    at = 0
    while len(buffer) - at >= LENGTH.size:
        (size,) = LENGTH.unpack_from(buffer, at)
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes; expected at most {FRAME_BYTES_MAX}")
        if len(buffer) - at - LENGTH.size < size:
            break
        found.append(bytes(buffer[at + LENGTH.size : at + LENGTH.size + size]))
        at += LENGTH.size + size
    del buffer[:at]
    return found


def json_of(value: Any) -> bytes:
    """A value as JSON."""
    return msgspec.json.encode(value)
