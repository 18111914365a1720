"""Admission: which users' jobs are taken, and as which Unix user their tasks run."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, select

from phalanx.backends.local.host.unix_user import UserError
from phalanx.errors import PhalanxError
from phalanx.server.accounts.identity import identity_of
from phalanx.server.accounts.ledger import grants_of
from phalanx.server.accounts.roles import Account, Role
from phalanx.server.options import Options
from phalanx.server.refusal import Refusal
from phalanx.server.store.tables import users
from phalanx.workload.job import Job, UnixIdentity

KEPT_MAX = 10_000
WEIGHTLESS_MAX = 1_000
"""Tasks of a job that ask for nothing: a node holds any number of them, so nothing else bounds what they cost."""


class Admission:
    """Takes jobs of users that exist, may come in and have a role in the queue, and binds their Unix user to the job.

    What was found of a user in a queue is kept until accounts change.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._kept: dict[tuple[str, str], UnixIdentity | None] = {}

    def forget(self) -> None:
        """Accounts have changed."""
        self._kept.clear()

    def admitted(self, connection: Connection, job: Job) -> Job:
        """A job as it is taken."""
        _need_weight(job)
        self._need_prometheus(job)
        key = (job.user, job.queue)
        if key not in self._kept:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            self._kept[key] = self._identity(connection, job)
        return replace(job, execution=replace(job.execution, run_as=self._kept[key]))

    def _need_prometheus(self, job: Job) -> None:
        if job.scale is not None and job.scale.query and not self._options.prometheus:
            raise Refusal(
                "invalid",
                "its scale is a query, but this server asks no Prometheus: start it with --prometheus URL, "
                "or take a metric that the service reports itself",
            )

    def _identity(self, connection: Connection, job: Job) -> UnixIdentity | None:
        try:
            self._need_user(connection, job.user)
            if not Account(job.user, grants_of(connection, job.user)).may(Role.MEMBER, job.queue):
                raise UserError(f"user '{job.user}' has no role of member in the queue '{job.queue}': give it one")
            return identity_of(connection, self._options, job.user)
        except PhalanxError as error:
            raise Refusal("forbidden", str(error)) from None

    def identity_at_start(self, connection: Connection, job: Job) -> UnixIdentity | None:
        """The Unix user as which a job's tasks start now. Jobs of older journals have not kept it."""
        if self._options.backend != "local":
            return None
        self._need_user(connection, job.user)
        bound = job.execution.run_as
        if bound is None:
            return identity_of(connection, self._options, job.user)
        number = connection.execute(select(users.c.number).where(users.c.name == job.user)).scalar_one()
        if not bound.user and bound.uid != self._options.uid_first + number:
            raise UserError(f"user '{job.user}' is another than when the job was submitted: submit it again")
        return bound

    def _need_user(self, connection: Connection, user: str) -> None:
        disabled = connection.execute(select(users.c.disabled).where(users.c.name == user)).scalar()
        if disabled is None:
            raise UserError(f"there is no user '{user}': its jobs cannot start")
        if disabled:
            raise UserError(f"user '{user}' is disabled: an admin can enable it")


def _need_weight(job: Job) -> None:
    weightless = sum(
        role.replicas_max
        for role in job.gang.roles
        if not role.members and not (role.task.gpus or role.task.cpus_milli or role.task.memory_mb)
    )
    if weightless > WEIGHTLESS_MAX:
        raise Refusal(
            "invalid",
            f"{weightless} tasks that ask for neither GPUs nor CPUs nor memory; expected at most {WEIGHTLESS_MAX}: "
            "say what they need",
        )
