"""Access to secrets: checked when a job is submitted, and again when an attempt starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from phalanx.server.loop.wire import SubmitJobs
from phalanx.server.refusal import Refusal
from phalanx.server.secrets.folder import SecretError, SecretFolder
from phalanx.server.secrets.grants import SecretGrant, all_grants
from phalanx.workload.job import Job

Grants = Mapping[str, Sequence[SecretGrant]]


def need_granted(connection: Connection, body: SubmitJobs, caller: str) -> None:
    """Refuses jobs of which one names a secret that it may not use.

    A grant must cover the job's user and the caller: an operator that submits for another user can look into the job,
    and would get at that user's secrets. A secret that there is not is refused in the same words as one without grant.
    """
    if not any(job.execution.secrets for job in body.jobs):
        return
    grants = all_grants(connection)
    for kind, job in enumerate(body.jobs):
        name = _ungranted(grants, job, {job.user, caller})
        if name is not None:
            index = next((place for place, (named, _) in enumerate(body.named) if named == kind), kind)
            raise Refusal(
                "forbidden",
                f"the job may not use the secret '{name}': no grant of such a secret covers jobs of {caller} in the "
                f"queue {job.queue}; an admin gives one with `phalanx secrets grant {name} --queue {job.queue}`",
                {"index": index, "secret": name},
            )


def need_granted_beside(connection: Connection, job: Job, caller: str) -> None:
    """Refuses a command beside a job whose secrets its caller may not use: the command has them in its environment."""
    name = _ungranted(all_grants(connection), job, {caller}) if job.user != caller else None
    if name is not None:
        raise Refusal(
            "forbidden",
            f"job {job.id} has the secret '{name}', which {caller} has no grant for in the queue {job.queue}: "
            f"an admin gives one with `phalanx secrets grant {name} --queue {job.queue} --user {caller}`",
        )


def values_for(connection: Connection, folder: SecretFolder, job: Job) -> dict[str, str]:
    """The secrets of a job that starts now, by name. One whose grant was taken away meanwhile ends the job."""
    name = _ungranted(all_grants(connection), job, {job.user})
    if name is not None:
        raise SecretError(
            f"secret '{name}': the grant that let this job use it was taken away; "
            f"an admin gives one with `phalanx secrets grant {name} --queue {job.queue}`"
        )
    return {name: folder.value(name) for name in job.execution.secrets}


def _ungranted(grants: Grants, job: Job, users: set[str]) -> str | None:
    """The first secret of a job that no grant lets it use, with each of some users; None if all may be used."""
    for name in job.execution.secrets:
        if not all(any(grant.covers(job.queue, user) for grant in grants.get(name, ())) for user in users):
            return name
    return None
