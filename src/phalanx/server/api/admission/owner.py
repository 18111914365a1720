"""The owner of a job: its submitter, or a user that the submitter may act as."""

from __future__ import annotations

from dataclasses import replace

from phalanx.server.accounts.ledger import grants_of
from phalanx.server.accounts.roles import Account, Role, Scope
from phalanx.server.api.context import Context
from phalanx.server.refusal import Refusal
from phalanx.workload.job import Job

QUEUES_SHOWN = 10


async def owned(job: Job, account: Account, context: Context) -> Job:
    """A job as its submitter's own. Operators may submit for users whose every role lies in what they operate."""
    if Scope.WRITE not in account.scopes:
        raise Refusal("forbidden", "this token is for looking only: log in again with the scope write")
    if not account.may(Role.MEMBER, job.queue):
        own = [grant.queue for grant in account.grants if account.may(Role.MEMBER, grant.queue)]
        instead = f", or take a queue in which you have it: {', '.join(own[:QUEUES_SHOWN])}" if own else ""
        raise Refusal(
            "forbidden", f"you may not submit to the queue {job.queue!r}: ask an admin for the role member{instead}"
        )
    if not job.user or job.user == account.user:
        return replace(job, user=account.user)
    if not account.may(Role.OPERATOR, job.queue):
        raise Refusal("forbidden", f"only operators of {job.queue!r} may submit for another user")
    await need_acting_as(job.user, account, context)
    return job


async def need_acting_as(user: str, account: Account, context: Context) -> None:
    """Refuses an account that would gain by what runs as another user: a role, or the files of another queue's work."""
    if user == account.user:
        return
    grants = await context.read(grants_of, user)
    if not grants and not account.may(Role.ADMIN):
        raise Refusal("forbidden", f"user {user!r} has no role: only an admin of the whole cluster may act for it")
    for grant in grants:
        if not (account.may(Role.OPERATOR, grant.queue) and account.may(grant.role, grant.queue)):
            raise Refusal(
                "forbidden",
                f"user {user!r} is {grant.role.value} of {grant.queue or 'every queue'}, and you may not act for it "
                "there: only for users whose every role lies in queues that you operate",
            )
