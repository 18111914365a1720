"""What server and shepherd write for one another, as JSON: what was asked for, and what became of it."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Probe(TypedDict):
    """How to see whether a task of a service is well: `kind` is http, tcp or command."""

    kind: str
    target: list[str]
    interval_ms: int
    timeout_ms: int
    failures: int
    after_ms: int


class Sandbox(TypedDict):
    """What a task that runs as the server's user must not see, and what of that it may read or write all the same."""

    hide: list[str]
    read: list[str]
    write: list[str]


class Binds(TypedDict):
    """Folders that a container gets and its user names: opened as `user`, and mounted below `folder` by number."""

    user: list[int]
    folder: str
    sources: list[str]


class TaskOrder(TypedDict):
    """One task to be run. `enter`, which ends with a name, precedes a command that is to run in its container;
    `remove` is run once it is gone. `inside` are the variables in a container, written to the file `inside_path`:
    `env` is then that of the engine, on which a job has no influence. With `terminal` it has one to print to and to be
    typed into. Papers of older versions lack the last five.
    """

    rank: int
    role: str
    node: str
    devices: list[int]
    argv: list[str]
    env: dict[str, str]
    workdir: str
    user: list[int]
    cpus_milli: int
    memory_mb: int
    enter: list[str]
    remove: list[str]
    inside: NotRequired[dict[str, str]]
    inside_path: NotRequired[str]
    binds: NotRequired[Binds]
    sandbox: NotRequired[Sandbox]
    terminal: NotRequired[bool]


Grounds = dict[str, str]
"""Folders of control groups below which tasks get their own, for `cpu` and `memory`; empty where there is none."""


class Order(TypedDict):
    """One attempt to be run: the first action for it, and the incarnation of the store that asked.

    `user` are the numbers of the Unix user that its tasks run as. A `bound` shepherd has a part of a gang: it ends its
    tasks when the line to the process that began it closes, and that says which members the gang has. Papers of
    older versions name no incarnation, queue, owner and user.
    """

    job: str
    attempt: int
    incarnation: NotRequired[str]
    queue: NotRequired[str]
    owner: NotRequired[str]
    term: int
    seq: int
    grace_ms: int
    service: bool
    probe: Probe | None
    idle_ms: int
    pens: Grounds
    tasks: list[TaskOrder]
    user: NotRequired[list[int]]
    bound: NotRequired[bool]


class Turn(TypedDict):
    """The devices that an attempt takes in turns, each a node and a number, and the job it shares its turn with.

    With `at_step` a turn goes on to the end of a step. An attempt that has taken more device memory than `memory_mb`
    leaves it to other attempts while it rests, where the driver can. Papers of older versions have neither.
    """

    places: list[list[str | int]]
    beside: str
    at_step: NotRequired[bool]
    memory_mb: NotRequired[int]


class Share(TypedDict):
    """What a task may have of a device that it shares: thousandths of its compute, and memory, with what is lent."""

    rank: int
    gpu_permille: int
    gpu_memory_mb: int


class Moved(TypedDict):
    """Device memory that went `out` to the host or `in` again, and how long that took."""

    way: str
    mb: int
    ms: int


class Answer(TypedDict):
    """What became of an action. Where device memory was moved for it, how fast."""

    term: int
    seq: int
    ok: bool
    reason: str
    retryable: bool
    node: str
    moved: NotRequired[Moved]


class Ending(TypedDict):
    """How an attempt ended. `outcome` is succeeded, failed or lost; stopped, if that was asked for.

    `ended_ms` is when its last process was gone, in milliseconds since 1970. Papers of older versions lack it, and
    it is unknown of an attempt whose shepherd was killed.
    """

    outcome: str
    exit_code: int
    reason: str
    ended_ms: NotRequired[int]


class TaskState(TypedDict):
    """What is known of one task. `began` is the kernel's start time of the process, which tells a reused pid apart."""

    rank: int
    pid: int
    began: int
    restarts: int
    healthy: bool
    ended: str


class AttemptState(TypedDict):
    """What is known of an attempt. `newest` is the highest number of an action that was taken on."""

    phase: str
    pid: int
    newest: int
    tasks: list[TaskState]
    answers: list[Answer]
    ending: Ending | None
