"""Routes of users, roles, tokens and the audit log."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from phalanx.backends.local.host.unix_user import UserError, identity_named
from phalanx.server.accounts.ledger import beyond, password_of
from phalanx.server.accounts.roles import ROOT, Account, Role, Scope, text_of
from phalanx.server.accounts.tokens import new_token
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of, origin_of
from phalanx.server.api.bodies import (
    LOGIN_S_MAX,
    NAME,
    QUEUE,
    LoginBody,
    RoleBody,
    TokenBody,
    UserBody,
    UserChangeBody,
)
from phalanx.server.api.context import Context
from phalanx.server.api.described import LIST, WRITE, answers
from phalanx.server.api.models.accounts import (
    AuditListModel,
    MeModel,
    NewTokenModel,
    RevokedModel,
    TokenListModel,
    UserListModel,
    UserModel,
)
from phalanx.server.api.models.base import ErrorModel
from phalanx.server.api.pages import Cursor, Limit, as_json, as_list, place_of
from phalanx.server.api.routes.jobs import hand_over
from phalanx.server.clock import wall_ms
from phalanx.server.loop.wire import AddToken, Caller, DropUser, PutRole, PutUser, RefuseLogin, RevokeToken
from phalanx.server.refusal import Refusal
from phalanx.server.store import accounts as table

router = APIRouter(tags=["accounts"])

LOGIN_MS_MAX = 1000 * LOGIN_S_MAX

UserName = Annotated[str, Path(pattern=NAME)]
QueuePath = Annotated[
    str, Path(pattern=f"^-$|{QUEUE}", max_length=1000, description="A queue; - is the root, above all queues.")
]
TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")]


@router.post("/login", status_code=201, responses=answers(NewTokenModel, WRITE, 201))
async def login(body: LoginBody, request: Request, context: WorkerContext) -> Response:
    """Trade a user name and password for a token of some scopes. Wrong passwords are audited and throttled."""
    caller = await checked_user(context, request, body.user, body.password)
    made = TokenBody(name=body.name or "login", scopes=body.scopes, ttl_s=body.ttl_s)
    return await _make_token(context, caller, made, wall_ms() + 1000 * body.ttl_s)


async def checked_user(context: Context, request: Request, name: str, password: str) -> Caller:
    """The user of a name and password. Wrong ones are audited and throttled."""
    user = "".join(letter if letter.isprintable() else "?" for letter in name)
    caller = Caller(user, "", origin_of(request))
    kept = await context.read(password_of, user)
    if not await context.passwords.matches(user, caller.origin, kept, password):
        await context.engine.ask(caller, RefuseLogin(user))
        raise Refusal("unauthenticated", "no such user and password")
    return caller


@router.get("/me", responses=answers(MeModel))
async def me(account: SignedIn) -> Response:
    """Show the user, the roles and the scopes of the caller."""
    return as_json(shown_account(account))


@router.get("/users", responses=answers(UserListModel))
async def list_users(account: SignedIn, context: WorkerContext) -> Response:
    """List all users."""
    _need_admin(account)
    return as_list(await context.read(table.list_users))


@router.post("/users", status_code=201, responses=answers(UserModel, WRITE, 201))
async def make_user(body: UserBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Make a user. Roles and tokens are given afterwards."""
    _need_admin(account)
    _need_unix_user(context, body.unix_user)
    kept = await context.passwords.hashed(body.password) if body.password is not None else None
    await hand_over(
        context, caller_of(request, account), PutUser(body.name, new=True, password=kept, unix_user=body.unix_user)
    )
    return await _user(context, body.name, 201)


@router.patch("/users/{name}", responses=answers(UserModel, WRITE))
async def change_user(
    name: UserName, body: UserChangeBody, request: Request, account: SignedIn, context: WorkerContext
) -> Response:
    """Change a user's password or Unix user, or shut a user out.

    Users change their own password with their current one; a first one needs a token with the scope `admin`.
    """
    if name != account.user or body.disabled is not None or body.unix_user is not None:
        _need_admin(account)
        _need_unix_user(context, body.unix_user)
    elif not {Scope.WRITE, Scope.ADMIN} & {*account.scopes}:
        raise Refusal("forbidden", "this token is for looking only")
    caller = caller_of(request, account)
    if body.password is not None and name == account.user:
        await _confirm(context, caller, account, body.current_password)
    kept = await context.passwords.hashed(body.password) if body.password is not None else None
    change = PutUser(name, new=False, password=kept, disabled=body.disabled, unix_user=body.unix_user)
    await hand_over(context, caller, change)
    return await _user(context, name, 200)


@router.delete("/users/{name}", status_code=204, responses=answers(ErrorModel, WRITE))
async def drop_user(name: UserName, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Remove a user with all roles and tokens. Pending jobs are cancelled, those that run go on."""
    _need_admin(account)
    await hand_over(context, caller_of(request, account), DropUser(name))
    return Response(status_code=204)


@router.put("/users/{name}/roles/{queue:path}", responses=answers(UserModel, WRITE))
async def give_role(
    name: UserName, queue: QueuePath, body: RoleBody, request: Request, account: SignedIn, context: WorkerContext
) -> Response:
    """Give a user a role in a queue and everything below it. Admins of a queue may do so there."""
    return await _set_role(context, request, account, PutRole(name, _queue(queue), body.role))


@router.delete("/users/{name}/roles/{queue:path}", responses=answers(UserModel, WRITE))
async def take_role(
    name: UserName, queue: QueuePath, request: Request, account: SignedIn, context: WorkerContext
) -> Response:
    """Take a role from a user."""
    return await _set_role(context, request, account, PutRole(name, _queue(queue), ""))


@router.get("/tokens", responses=answers(TokenListModel))
async def list_tokens(account: SignedIn, context: WorkerContext) -> Response:
    """List your tokens; admins see those of all users."""
    return as_list(await context.read(table.list_tokens, "" if account.may(Role.ADMIN) else account.user))


@router.post("/tokens", status_code=201, responses=answers(NewTokenModel, WRITE, 201))
async def make_token(body: TokenBody, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Make a token. It can do no more than the token it is made with, ends no later, and is revoked with it."""
    user = body.user or account.user
    if user != account.user:
        _need_admin(account)
    for scope in body.scopes:
        if Scope(scope) not in account.scopes:
            raise Refusal("forbidden", f"your own token lacks the scope {scope}")
    if Scope.WRITE not in account.scopes:
        raise Refusal("forbidden", "this token is for looking only")
    return await _make_token(context, caller_of(request, account), body, _end_ms(body, account), _made_with(account))


@router.delete("/tokens/{token}", responses=answers(RevokedModel, WRITE))
async def revoke_token(token: TokenId, request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """Revoke a token, with all that were made with it: they are worthless at once."""
    own = {each["id"] for each in await context.read(table.list_tokens, account.user)}
    if token not in own and not account.may(Role.ADMIN):
        raise Refusal("not_found", f"you have no token {token!r}")
    if token != account.token and Scope.WRITE not in account.scopes:
        raise Refusal("forbidden", "this token is for looking only")
    answer = await hand_over(context, caller_of(request, account), RevokeToken(token))
    return Response(answer.body, media_type="application/json")


@router.get("/audit", responses=answers(AuditListModel, LIST))
async def list_audit(
    account: SignedIn,
    context: WorkerContext,
    user: Annotated[str, Query(max_length=200)] = "",
    target: Annotated[str, Query(max_length=200)] = "",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Response:
    """List the changes with their user, target, time and origin, the newest first."""
    _need_admin(account)
    found = await context.read(table.audit_page, place_of(cursor), limit, user, target)
    return as_list(found, found[-1]["number"] if len(found) == limit else None)


def shown_account(account: Account) -> dict[str, object]:
    """What an account is to the server."""
    return {
        "user": account.user,
        "roles": [{"queue": grant.queue, "role": grant.role.value} for grant in account.grants],
        "scopes": [scope.value for scope in account.scopes],
    }


def _need_unix_user(context: Context, name: str | None) -> None:
    """Refuses a Unix user that tasks could not run as: the admin can put it right, the user could not."""
    if name and context.options.backend == "local":
        try:
            identity_named(name)
        except UserError as error:
            raise Refusal("invalid", str(error)) from None


def _need_admin(account: Account) -> None:
    if not account.may(Role.ADMIN):
        raise Refusal("forbidden", "only an admin of the whole cluster may do this")


def _queue(path: str) -> str:
    return ROOT if path == "-" else path


async def _confirm(context: Context, caller: Caller, account: Account, password: str | None) -> None:
    """A user's token alone must not change the password: what it is traded for has more scopes and no end."""
    kept = await context.read(password_of, account.user)
    if kept is None:
        if Scope.ADMIN not in account.scopes:
            raise Refusal(
                "forbidden", "a first password needs a token with the scope admin: use one, or have an admin set it"
            )
        return
    if password is None:
        raise Refusal(
            "forbidden", "to change your password, send the current one as current_password, or have an admin set it"
        )
    if not await context.passwords.matches(account.user, caller.origin, kept, password):
        await context.engine.ask(caller, RefuseLogin(account.user, again=True))
        raise Refusal("forbidden", "current_password is not your current password: nothing was changed")


def _end_ms(body: TokenBody, account: Account) -> int | None:
    """When a token ends: never after the one it is made with."""
    asked_ms = None if body.ttl_s is None else wall_ms() + 1000 * body.ttl_s
    last_ms = account.expires_ms
    if account.session_until_ms is not None:
        last_ms = account.parent_ends_ms if account.parent else wall_ms() + LOGIN_MS_MAX
    if last_ms is None or (asked_ms is not None and asked_ms <= last_ms):
        return asked_ms
    if "ttl_s" in body.model_fields_set:
        raise Refusal("forbidden", beyond(last_ms))
    return last_ms


def _made_with(account: Account) -> str | None:
    """The token that a new one is made with, and ends with. A session stands for what it was opened with: tokens that
    are made in a browser do not end when its user logs out.
    """
    return account.token if account.session_until_ms is None else account.parent


async def _make_token(
    context: Context, caller: Caller, body: TokenBody, expires_ms: int | None, parent: str | None = None
) -> Response:
    token = new_token()
    user = body.user or caller.user
    scopes = text_of(Scope(scope) for scope in body.scopes)
    await hand_over(context, caller, AddToken(token.id, user, body.name, token.digest, scopes, expires_ms, parent))
    return as_json(
        {
            "id": token.id,
            "token": token.token,
            "user": user,
            "name": body.name,
            "scopes": scopes.split(","),
            "expires_ms": expires_ms,
            "parent": parent,
        },
        201,
    )


async def _set_role(context: Context, request: Request, account: Account, change: PutRole) -> Response:
    if not account.may(Role.ADMIN, change.queue):
        raise Refusal("forbidden", f"only an admin of {change.queue or 'the whole cluster'} may give roles there")
    await hand_over(context, caller_of(request, account), change)
    response = await _user(context, change.name, 200)
    if account.may(Role.ADMIN):
        return response
    # An admin of a queue learns nothing of what a user is elsewhere.
    shown = msgspec.json.decode(response.body)
    roles = [each for each in shown["roles"] if account.may(Role.ADMIN, each["queue"])]
    return as_json({**shown, "roles": roles, "unix_user": ""})


async def _user(context: Context, name: str, status: int) -> Response:
    users = {user["name"]: user for user in await context.read(table.list_users)}
    if name not in users:
        raise Refusal("not_found", f"there is no user {name!r}")
    return as_json(users[name], status)
