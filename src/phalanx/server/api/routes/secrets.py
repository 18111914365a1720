"""Routes of secrets. Values come in and never go out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from phalanx.server.accounts.roles import ROOT, Account, Role
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of
from phalanx.server.api.bodies import NAME, QUEUE_OR_ROOT, SecretBody, SecretGrantBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import WRITE, answers
from phalanx.server.api.models.accounts import SecretListModel, SecretModel
from phalanx.server.api.models.base import ErrorModel
from phalanx.server.api.pages import as_json, as_list
from phalanx.server.api.routes.jobs import hand_over
from phalanx.server.loop.wire import DropSecret, GrantSecret, PutSecret
from phalanx.server.refusal import Refusal
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.secrets.names import FILE_NAME
from phalanx.server.store.secrets import list_secrets

router = APIRouter(tags=["secrets"])

SecretName = Annotated[str, Path(pattern=FILE_NAME, description="The name of the secret, and of the variable.")]
ROOT_PATH = "-"


@router.get("/secrets", responses=answers(SecretListModel))
async def list_all(account: SignedIn, context: WorkerContext) -> Response:
    """List the secrets that your jobs may use, with the grants that let them; admins see all. Never the values."""
    return as_list(await context.read(list_secrets, _folder(context), account))


@router.put("/secrets/{name}", responses=answers(SecretModel, WRITE))
async def put_secret(
    name: SecretName, body: SecretBody, request: Request, account: SignedIn, context: WorkerContext
) -> Response:
    """Set the value of a secret, and its grants if they are given. Attempts that start from now on get this value."""
    _need_admin(account)
    grants = None if body.grants is None else [_pair(grant.queue, grant.user) for grant in body.grants]
    await hand_over(context, caller_of(request, account), PutSecret(name, body.value, grants))
    return await _secret(context, account, name)


@router.delete("/secrets/{name}", status_code=204, responses=answers(ErrorModel, WRITE))
async def drop_secret(name: SecretName, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Delete a secret with its value and its grants. Tasks that run keep the value they were started with."""
    _need_admin(account)
    await hand_over(context, caller_of(request, account), DropSecret(name))
    return Response(status_code=204)


@router.put("/secrets/{name}/grants", responses=answers(SecretModel, WRITE))
async def grant_secret(
    name: SecretName, body: SecretGrantBody, request: Request, account: SignedIn, context: WorkerContext
) -> Response:
    """Let jobs use a secret: those of a queue and all below it, those of a user, or with both those that match both."""
    _need_admin(account)
    queue, user = _pair(body.queue, body.user)
    await hand_over(context, caller_of(request, account), GrantSecret(name, queue, user))
    return await _secret(context, account, name)


@router.delete("/secrets/{name}/grants", responses=answers(SecretModel, WRITE))
async def revoke_secret(
    name: SecretName,
    request: Request,
    account: SignedIn,
    context: WorkerContext,
    queue: Annotated[str, Query(pattern=f"^$|{QUEUE_OR_ROOT}", max_length=1000, description="As it was granted.")] = "",
    user: Annotated[str, Query(pattern=f"^$|{NAME}", description="As it was granted.")] = "",
) -> Response:
    """Take a grant of a secret away. Pending jobs that need it end when they would start."""
    _need_admin(account)
    granted = _pair(queue or None, user or None)
    await hand_over(context, caller_of(request, account), GrantSecret(name, *granted, revoked=True))
    return await _secret(context, account, name)


def _need_admin(account: Account) -> None:
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "only an admin of the whole cluster may manage secrets")


def _pair(queue: str | None, user: str | None) -> tuple[str, str]:
    """A grant as the store has it."""
    if queue is None and user is None:
        raise Refusal("invalid", "a grant names a queue, a user or both; the queue - is every queue")
    return ROOT if queue in (None, ROOT_PATH) else str(queue), user or ""


def _folder(context: Context) -> SecretFolder:
    return SecretFolder(context.options.file("secrets"))


async def _secret(context: Context, account: Account, name: str) -> Response:
    found = {item["name"]: item for item in await context.read(list_secrets, _folder(context), account)}
    gone = {"name": name, "grants": [], "has_value": False, "created_ms": None, "updated_ms": None}
    return as_json(found.get(name, gone))
