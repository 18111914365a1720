"""Mutations in the words of the audit log: what was done, to what, and more about it."""

from __future__ import annotations

from typing import Any

from phalanx.cluster.cluster import Health
from phalanx.server.loop.updating import words_of
from phalanx.server.loop.wire import (
    AddToken,
    AskCheckpoint,
    ChangeArray,
    ChangeCluster,
    ChangeJob,
    ChangeNode,
    ChangePolicy,
    ChangeSettings,
    DropSecret,
    DropUser,
    GrantSecret,
    KeepAlerts,
    KeepToldStart,
    Mutation,
    PutRole,
    PutSecret,
    PutUser,
    RefuseLogin,
    RenewSession,
    ReportLoads,
    ReportProgress,
    ResizeJob,
    RevokeToken,
    RunBeside,
    SubmitJobs,
    UpdateJobs,
)
from phalanx.server.secrets import keeper

INSIDE = {"exec": "exec in job", "attach": "attach to job", "forward": "forward port of job"}
"""What may be done in a running job."""


def verb_of(body: Mutation) -> str:
    """What a mutation is called in the audit log."""
    match body:
        case ChangeJob(verb=verb):
            return f"{verb} job"
        case ChangeArray(verb=verb):
            return f"{verb} array"
        case RunBeside(verb=verb):
            return INSIDE[verb]
        case ChangeNode(health=health):
            return "undrain node" if health == Health.HEALTHY else "drain node"
        case PutUser(new=new):
            return "create user" if new else "change user"
        case ChangeCluster() | ChangeSettings():
            return "change cluster"
        case ChangePolicy():
            return "change policy"
        case PutRole(role=role):
            return "grant role" if role else "take role"
        case AddToken(session_until_ms=int()):
            return "log in"
        case RefuseLogin(again=again):
            return "confirm password" if again else "log in"
        case GrantSecret(revoked=revoked):
            return "revoke secret" if revoked else "grant secret"
        case _:
            return {
                SubmitJobs: "submit jobs",
                ResizeJob: "resize job",
                UpdateJobs: "update job",
                AskCheckpoint: "save job",
                DropUser: "delete user",
                AddToken: "create token",
                RevokeToken: "revoke token",
                RenewSession: "renew session",
                PutSecret: "set secret",
                DropSecret: "delete secret",
                ReportProgress: "report progress",
                KeepAlerts: "keep alerts",
                ReportLoads: "report loads",
            }[type(body)]


def described(body: Mutation, done: Any) -> tuple[str, str]:
    """To what a mutation was done, and more about it."""
    match body:
        case SubmitJobs(jobs=jobs, named=named):
            ids = done.get("ids", []) if isinstance(done, dict) else []
            queues = dict.fromkeys(job.queue for job in jobs)
            shown = ids[0] if len(ids) == 1 else f"{ids[0]}…{ids[-1]}" if ids else ""
            return shown, f"{len(named) or len(jobs)} in {', '.join(queues)}"
        case ChangeJob(job=job, reason=reason):
            return job, reason
        case AskCheckpoint(job=job) | ReportProgress(job=job) | KeepToldStart(job=job):
            return job, ""
        case ChangeArray(array=array, jobs=jobs):
            return array, f"{len(jobs)} members"
        case ResizeJob(job=job, replicas=replicas, minimum=minimum, role=role):
            least = f", at least {minimum}" if minimum is not None else ""
            return job, f"{replicas} replicas{least}{f' of {role}' if role else ''}"
        case UpdateJobs(jobs=jobs, array=array):
            return array or jobs[0], words_of(body)
        case RunBeside(job=job, rank=rank, command=command):
            return job, f"task {rank}{': ' if command else ''}{' '.join(command)}"
        case ChangeNode(node=node, reason=reason, gpus=gpus):
            only = f"GPU {', '.join(map(str, gpus))}" if gpus else ""
            return node, ": ".join(filter(None, (only, reason)))
        case ChangeCluster(cluster=cluster):
            return cluster.name, f"{len(cluster.nodes)} nodes, {len(cluster.queues)} queues, {cluster.policy}"
        case ChangeSettings(settings=settings):
            return "", f"only {', '.join(settings.said)}"
        case ChangePolicy(policy=policy, placement=placement):
            return policy, placement
        case PutRole(name=name, queue=queue, role=role):
            return name, f"{role or 'nothing'} in {queue or 'every queue'}"
        case AddToken(id=number, user=user, name=name, scopes=scopes, parent=parent):
            return number, f"{name} of {user}: {scopes}{f', made with {parent}' if parent else ''}"
        case RenewSession(id=number):
            return number, ""
        case RevokeToken(id=number):
            others = done.get("revoked", 1) - 1
            return number, f"and {others} made with it" if others else ""
        case RefuseLogin(user=user):
            return user, ""
        case KeepAlerts(firing=firing):
            return "", str(len(firing))
        case ReportLoads(loads=loads):
            return "", str(len(loads))
        case PutSecret(name=name, grants=given):
            return name, "; ".join(keeper.grant_words(*each) for each in given or ())
        case GrantSecret(name=name, queue=queue, user=user):
            return name, keeper.grant_words(queue, user)
        case PutUser(name=name):
            return name, _changed_of(body)
        case DropUser(name=name) | DropSecret(name=name):
            return name, ""


def _changed_of(body: PutUser) -> str:
    """What of a user is set: an auditor wants to know, and a password is not told."""
    disabled = "" if body.disabled is None else "disabled" if body.disabled else "enabled"
    unix_user = f"Unix user {body.unix_user or 'of its own number'}" if body.unix_user is not None else ""
    return ", ".join(word for word in ("password" if body.password else "", disabled, unix_user) if word)
