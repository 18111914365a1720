"""The tables, as the newest migration leaves them.

`journal` is the truth. `jobs`, `attempts`, `nodes`, `classes` and what tells of their past are a view of the State,
written in the transaction of the records they follow from, for all that only read. The rest is what no record tells:
accounts, the audit log, snapshots, and answers kept for requests that are made twice.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()

settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

journal = Table(
    "journal",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("now_ms", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("job", Text, nullable=False, default=""),
    Column("line", LargeBinary, nullable=False),
    Index("journal_by_job", "job", "seq"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("now_ms", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),
    Column("parts", Integer, nullable=False),
)

snapshot_parts = Table(
    "snapshot_parts",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("wait_reason", Text, nullable=False),
    Column("shape", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("running_since_ms", BigInteger),
    Column("executed_before_ms", BigInteger, nullable=False, server_default="0"),
    Column("executed_before_gpu_ms", BigInteger, nullable=False, server_default="0"),
    Column("ended_ms", BigInteger),
    Column("expected_end_ms", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("end_reason", Text, nullable=False),
    Column("array_of", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("submit_seq", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Index("jobs_by_state", "state", "number"),
    Index("jobs_by_kind", "kind", "number"),
    Index("jobs_by_user", "user", "number"),
    Index("jobs_by_name", "name", "number"),
    Index("jobs_by_array", "array_of", "number"),
)

job_labels = Table(
    "job_labels",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
)

job_queues = Table(
    "job_queues",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
)
"""Every job with its queue and each queue above that, so that a subtree is listed in order without being sorted."""

attempts = Table(
    "attempts",
    metadata,
    Column("job", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("phase", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("outcome", Text),
    Column("exit_code", Integer),
    Column("reason", Text, nullable=False),
    Column("nodes", Text, nullable=False),
    Column("slots", Text, nullable=False),
    Column("step", BigInteger),
    Column("durable_step", BigInteger),
    Column("lost_ms", BigInteger),
    Column("lost_gpu_ms", BigInteger),
)

attempt_sizes = Table(
    "attempt_sizes",
    metadata,
    Column("job", Text, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("gpus", Integer, nullable=False),
)
"""The GPUs that attempts held until they were resized. `attempts` has what they held since then."""

start_forecasts = Table(
    "start_forecasts",
    metadata,
    Column("job", Text, primary_key=True),
    Column("told_start_ms", BigInteger, nullable=False),
    Column("policy", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
)
"""The start that a submitter was told, when, and the policy of that moment. Jobs without a row were told none."""

classes = Table(
    "classes",
    metadata,
    Column("shape", Text, primary_key=True),
    Column("verdict", Text, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", Integer, nullable=False, unique=True),
    Column("health", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("gpus_used", Integer, nullable=False),
    Column("jobs", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Column("devices", Text, nullable=False, server_default="[]"),
    Column("seq", BigInteger, nullable=False, server_default="-1"),
    Index("nodes_by_seq", "seq"),
)
"""`seq` is the record after which something last changed on the node: a reader that follows it reads what is newer."""

job_phases = Table(
    "job_phases",
    metadata,
    Column("job", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("nodes", Text, nullable=False),
    Index("job_phases_by_job", "job", "number", "at_ms"),
)
"""When attempts came to phases that `attempts` tells no time of: those of being suspended, resized and stopped."""

node_attempts = Table(
    "node_attempts",
    metadata,
    Column("node", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("job", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Index("node_attempts_by_node", "node", "created_ms"),
)
"""Every attempt with the nodes it has had, so that the past of a node is found without looking at all attempts."""

node_healths = Table(
    "node_healths",
    metadata,
    Column("node", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("health", Text, nullable=False),
    Column("reason", Text, nullable=False),
)
"""What became of the health of nodes, and when."""

findings = Table(
    "findings",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("job", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("task", Integer, nullable=False),
    Column("node", Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("device", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Index("findings_by_job", "job", "number", "seq"),
    Index("findings_by_node", "node", "seq"),
)
"""What launchers have found out about the tasks of their attempts, and where these ran."""

users = Table(
    "users",
    metadata,
    Column("name", Text, primary_key=True),
    Column("password", Text),
    Column("disabled", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("unix_user", Text, nullable=False, server_default=""),
    Column("number", Integer, nullable=False, server_default="0"),
)

grants = Table(
    "grants",
    metadata,
    Column("user", Text, primary_key=True),
    Column("queue", Text, primary_key=True),
    Column("role", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("parent", Text),
    Column("session_until_ms", BigInteger),
    Index("tokens_by_user", "user"),
    Index("tokens_by_parent", "parent"),
)
"""Tokens, and sessions of browsers, which are tokens that end at `session_until_ms` at the latest and before that when
they are not used.
"""

secrets = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
)
"""Secrets that were set here. Their values are files, never rows."""

secret_grants = Table(
    "secret_grants",
    metadata,
    Column("secret", Text, primary_key=True),
    Column("queue", Text, primary_key=True),
    Column("user", Text, primary_key=True),
)
"""Which jobs may use a secret: those of a queue and below (empty: every queue) and of a user (empty: every user)."""

audit = Table(
    "audit",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("user", Text, nullable=False),
    Column("token", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("verb", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("outcome", Text, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("user", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Index("idempotency_by_time", "at_ms"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("rule", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("value", Float, nullable=False),
    Column("action", Text, nullable=False),
)
