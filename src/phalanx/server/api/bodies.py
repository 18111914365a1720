"""What requests carry. An unknown key is an error."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

from phalanx.cluster.formats.limits import GPUS_PER_NODE_MAX
from phalanx.server.secrets.folder import VALUE_BYTES_MAX

NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$"
QUEUE = r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$"
QUEUE_OR_ROOT = f"^-$|{QUEUE}"
STEPS_MAX = 1 << 53
LOGIN_S_MAX = 366 * 86_400
"""The longest that a token lasts which a password is traded for."""

YEARS_MS = 100 * 366 * 86_400_000

Count = Annotated[StrictInt, Field(ge=0, le=STEPS_MAX)]
Number = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1e15)]
Text = Annotated[StrictStr, Field(max_length=200)]
Scopes = Annotated[list[Literal["read", "write", "admin"]], Field(min_length=1, max_length=3)]
Password = Annotated[StrictStr, Field(min_length=8, max_length=1024)]


class Body(BaseModel):
    """What all bodies have in common."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Body):
    """An empty object."""


class CheckpointBody(Body):
    """How soon a job is to have saved its work."""

    within_s: Annotated[StrictInt, Field(ge=1, le=86_400)] = 300


class ResizeBody(Body):
    """How many replicas a job is to have. An elastic one keeps its least, unless `min` says another."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"replicas": 4}})

    replicas: Annotated[
        StrictInt,
        Field(
            ge=0, le=100_000, description="The most it is to have; 0 only of a service whose scale has that as `min`."
        ),
    ]
    min: Annotated[StrictInt | None, Field(ge=1, le=100_000, description="The least it can do with.")] = None
    role: Annotated[str, Field(max_length=200, description="Of a gang of several roles: which.")] = ""


Moment = Annotated[StrictStr, Field(min_length=1, max_length=64)]


class UpdateBody(Body):
    """What is to change of a pending job; what is left out stays. Times are as in a job file; `none` takes one away."""

    TIMES: ClassVar = ("duration", "max_run", "begin", "deadline")
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"priority": 50, "max_run": "8h"}})

    priority: StrictInt | None = None
    queue: Annotated[StrictStr, Field(pattern=QUEUE, max_length=1000)] | None = None
    duration: Moment | None = None
    max_run: Moment | None = None
    begin: Moment | None = None
    deadline: Moment | None = None

    @model_validator(mode="after")
    def _says_something(self) -> UpdateBody:
        if not self.model_fields_set:
            raise ValueError(f"expected at least one of priority, queue, {', '.join(self.TIMES)}")
        return self


class FindingBody(Body):
    """What a launcher has found out about one of its tasks, as `phalanx launch` does."""

    kind: Annotated[
        Literal["slow", "recovered", "hang", "lost", "failed", "failing"],
        Field(
            description="A rank that is slow, or as fast as the others again; makes no progress; was lost with its "
            "agent; failed first; or a task whose ranks fail again and again."
        ),
    ]
    task: Annotated[Count, Field(description="The task it is about, of this attempt; the server knows its node.")]
    text: Annotated[StrictStr, Field(min_length=1, max_length=500)]
    rank: Annotated[StrictInt, Field(ge=-1, le=10_000_000, description="The rank of the training; -1: not known.")] = -1
    local_rank: Annotated[StrictInt, Field(ge=-1, le=100_000, description="Its rank within the task: its GPU.")] = -1


class ProgressBody(Body):
    """What a running job says of itself. One that has nothing but `findings` leaves what was said before as it is.

    A finding is written down unless the same was said of the task in the last ten minutes, or the attempt has said 30
    things in the last hour.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"step": 1200, "durable_step": 1000, "samples_per_s": 310.5, "stop_cost_ms": 2000}
        },
    )
    step: Count = 0
    samples_per_s: Number = 0.0
    durable_step: Count = 0
    stop_cost_ms: Annotated[
        StrictInt,
        Field(ge=0, le=YEARS_MS, description="Time to stop and come back, beside all since the durable step."),
    ] = 0
    gpu_busy: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] = 0.0
    memory_gb: Number = 0.0
    metrics: dict[Text, Annotated[StrictFloat | StrictInt, Field(ge=-1e15, le=1e15)] | None] = Field(
        {},
        max_length=100,
        description="By name; null for one that is no number any more, such as a loss that diverged.",
    )
    findings: list[FindingBody] = Field([], max_length=8)


Gpus = Annotated[
    list[Annotated[StrictInt, Field(ge=0)]],
    Field(
        max_length=GPUS_PER_NODE_MAX, description="Only these GPUs of the node, by their numbers. Default: the node."
    ),
]


class DrainBody(Body):
    """Why a node, or a part of its GPUs, is drained."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"reason": "new fan", "gpus": [3]}})
    reason: Text = ""
    gpus: Gpus = []
    share_max: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="Refused if more than this share of the nodes would then be out of service, in whole or in "
            "part; one may be in any case. For programs that drain nodes by themselves.",
        ),
    ] = 1.0


class UndrainBody(Body):
    """What takes work again."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"gpus": [3]}})
    gpus: Gpus = []


class PolicyBody(Body):
    """What is to decide: a policy with its parameters, and a way to choose among places (empty: as it is)."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"policy": "priority"}})
    policy: Annotated[StrictStr, Field(min_length=1, max_length=200)]
    placement: Text = ""


JobFile = dict[str, Any] | StrictStr
AS_TEXT = "Each as an object, or as the text of a file, in YAML or JSON."


class PlanBody(Body):
    """Jobs to plan, each as a job file."""

    jobs: Annotated[list[JobFile], Field(min_length=1, max_length=100, description=AS_TEXT)]


class WhatIfBody(Body):
    """What is to be different."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"policy": "srtf", "fail": ["rack:r3"]}})
    policy: Text | None = None
    add_nodes: Annotated[StrictInt, Field(ge=0, le=10_000)] = 0
    like: Annotated[Text, Field(description="A node that those to be added are like; the last, if none is named.")] = ""
    fail: Annotated[
        list[Text],
        Field(max_length=10_000, description="Nodes, or all of a domain by level and name, such as `rack:r3`."),
    ] = []
    jobs: Annotated[list[JobFile], Field(max_length=100, description=AS_TEXT)] = []


class StudyBody(Body):
    """A study in virtual time. Texts are as on the command line of `phalanx compare` and `phalanx capacity`."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"source": "history", "policies": ["priority:backfill=easy", "fair"]}},
    )
    kind: Literal["compare", "capacity"] = "compare"
    source: Annotated[
        StrictStr,
        Field(
            pattern=r"^(history|upload:[0-9a-f]{16}|synthetic:[a-z_0-9=,.-]{0,400})$",
            description="Which jobs: `history` are those of this server, `upload:ID` a trace, `synthetic:…` made ones.",
        ),
    ]
    cluster: Annotated[
        StrictStr, Field(max_length=200_000, description="The text of a cluster file; empty: the server's own cluster.")
    ] = ""
    policies: Annotated[list[Text], Field(max_length=8, description="Empty is the policy of the cluster.")] = []
    placement: Text = "topology"
    costs: Text = "default"
    seeds: Annotated[StrictInt, Field(ge=1, le=20)] = 1
    load: Text = ""
    window: Text = ""
    until: Text = ""
    estimates: Text = ""
    skip_bad_rows: StrictBool = False
    faults: Annotated[Text, Field(description="A profile of failures, such as `rsc-1` or `rsc-1:scale=2`.")] = ""
    targets: Annotated[list[Text], Field(max_length=4, description="Of `capacity`, which needs one or more.")] = []
    nodes: Annotated[Text, Field(description="Of `capacity`: from how many nodes to how many, as `8:64`.")] = ""
    price_usd_h: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1e6)] = 0.0

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> StudyBody:
        if (self.kind == "capacity") != bool(self.targets):
            raise ValueError("expected targets for a study of capacity, and for no other")
        return self


class LoginBody(Body):
    """A user, a password, what the token is to be called, and what it may be used for."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"user": "ada", "password": "correct horse", "name": "laptop"}}
    )
    user: Annotated[StrictStr, Field(max_length=64)]
    password: Annotated[StrictStr, Field(max_length=1024)]
    name: Text = "login"
    scopes: Scopes = ["read", "write", "admin"]
    ttl_s: Annotated[StrictInt, Field(ge=60, le=LOGIN_S_MAX)] = 30 * 86_400


class SessionBody(Body):
    """What a session of a browser is opened with: a user and a password, or a token."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"user": "ada", "password": "correct horse"}}
    )
    user: Annotated[StrictStr, Field(max_length=64)] | None = None
    password: Annotated[StrictStr, Field(max_length=1024)] | None = None
    token: Annotated[StrictStr, Field(max_length=300)] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> SessionBody:
        given = tuple(value is not None for value in (self.user, self.password, self.token))
        if given not in ((True, True, False), (False, False, True)):
            raise ValueError("expected user and password, or token")
        return self


UnixUser = Annotated[
    StrictStr,
    Field(pattern=r"^([a-z_][a-z0-9_.-]{0,31})?$", description="The Unix user that the user's tasks run as."),
]


class UserBody(Body):
    """A new user. One without a password can only use tokens."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "ada"}})
    name: Annotated[StrictStr, Field(pattern=NAME)]
    password: Password | None = None
    unix_user: UnixUser = ""


class UserChangeBody(Body):
    """What is to change of a user. To change your own password, send the `current_password` with it."""

    password: Password | None = None
    current_password: Annotated[StrictStr, Field(max_length=1024)] | None = None
    disabled: StrictBool | None = None
    unix_user: UnixUser | None = None


class RoleBody(Body):
    """A role."""

    role: Literal["viewer", "member", "operator", "admin"]


class TokenBody(Body):
    """A new token of one's own, or (for admins) of another user. It ends no later than the token it is made with.

    Without `ttl_s` it lasts 30 days, or as long as the token it is made with; null is for ever.
    """

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"name": "ci", "scopes": ["read", "write"], "ttl_s": 604800}}
    )
    name: Annotated[StrictStr, Field(min_length=1, max_length=64)]
    user: Annotated[StrictStr, Field(pattern=NAME)] | None = None
    scopes: Scopes = ["read", "write"]
    ttl_s: Annotated[StrictInt, Field(ge=1, le=10 * 366 * 86_400)] | None = 30 * 86_400


class SecretGrantBody(Body):
    """Which jobs may use a secret: at least one of both is given."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"queue": "research"}})
    queue: Annotated[
        StrictStr | None,
        Field(pattern=QUEUE_OR_ROOT, max_length=1000, description="A queue, with all below it; - is every queue."),
    ] = None
    user: Annotated[StrictStr | None, Field(pattern=NAME, description="The user of the job.")] = None


class SecretBody(Body):
    """A secret. Its value cannot be read back."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"value": "s3cr3t", "grants": [{"queue": "research"}]}}
    )
    value: Annotated[
        StrictStr,
        Field(min_length=1, max_length=VALUE_BYTES_MAX, description="Text of at most 65,536 bytes in UTF-8, no NUL."),
    ]
    grants: Annotated[
        list[SecretGrantBody] | None,
        Field(max_length=1000, description="These instead of those it has; left out, those it has stay."),
    ] = None

    @field_validator("value")
    @classmethod
    def _fits_a_variable(cls, value: str) -> str:
        """Errors say what is wrong and nothing of the value."""
        if "\0" in value or len(value.encode(errors="replace")) > VALUE_BYTES_MAX:
            raise ValueError(f"expected text of at most {VALUE_BYTES_MAX} bytes without NUL")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError("expected text that UTF-8 can hold")
        return value
