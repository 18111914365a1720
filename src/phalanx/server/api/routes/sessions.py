"""Routes of sessions: how a browser logs in, is known, and logs out."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter, Request, Response

from phalanx.server.accounts.roles import Account, Role, text_of
from phalanx.server.accounts.sessions import MOST_MS, csrf_of, end_ms
from phalanx.server.accounts.tokens import new_token
from phalanx.server.api.admission.browser import cookie_of, drop_cookie, need_same_origin, set_cookie
from phalanx.server.api.auth import SignedIn, WorkerContext, caller_of, origin_of, session_of
from phalanx.server.api.bodies import SessionBody
from phalanx.server.api.context import Context
from phalanx.server.api.described import WRITE, answers
from phalanx.server.api.models.accounts import SessionModel
from phalanx.server.api.models.base import ErrorModel
from phalanx.server.api.pages import as_json
from phalanx.server.api.routes.accounts import checked_user, shown_account
from phalanx.server.api.routes.jobs import hand_over
from phalanx.server.clock import wall_ms
from phalanx.server.loop.wire import AddToken, Caller, RevokeToken
from phalanx.server.options import Shown
from phalanx.server.refusal import Refusal

router = APIRouter(tags=["accounts"])

NAME = "browser"
"""What the sessions are called in the list of tokens."""

ALL_SCOPES = "read,write,admin"

NOBODY: dict[str, object] = {
    "user": None,
    "role": None,
    "roles": [],
    "scopes": [],
    "csrf": None,
    "expires_ms": None,
    "until_ms": None,
    "file": None,
}


@router.post("/session", responses=answers(SessionModel, WRITE))
async def log_in(body: SessionBody, request: Request, context: WorkerContext) -> Response:
    """Open a session of a browser with a password or a token. Its cookie is HttpOnly, its secret always a new one.

    The session ends after 2 hours without a request, after 12 hours in all, and with the token it was opened with.
    Every change by the cookie needs the header `X-CSRF-Token` with `csrf`.
    """
    need_same_origin(request, context.options)
    opening = await _opening(body, request, context)
    token = new_token()
    session = AddToken(token.id, opening.user, NAME, token.digest, *_terms(opening))
    await hand_over(context, Caller(opening.user, opening.token, origin_of(request)), session)
    await _end_before(request, context)
    account = await context.account(token.token)
    if account is None:
        raise Refusal("unauthenticated", "what the session was opened with is not valid any more")
    response = as_json(_shown(account, token.token))
    set_cookie(response, request, context.options, token.token)
    return response


@router.get("/session", responses=answers(SessionModel))
async def show_session(request: Request, context: WorkerContext) -> Response:
    """Show the session of this browser. Without one every key is null: a page asks this first."""
    account = await session_of(request, context)
    if account is None:
        return as_json({**NOBODY, "file": _file_of(context, is_known=False)})
    context.renewals.note(account, origin_of(request))
    shown = _shown(account, cookie_of(request, context.options))
    return as_json({**shown, "file": _file_of(context, is_known=True)})


@router.delete("/session", status_code=204, responses=answers(ErrorModel, WRITE))
async def log_out(request: Request, account: SignedIn, context: WorkerContext) -> Response:
    """End the session of this browser, here and not only in its cookie."""
    if account.session_until_ms is None:
        raise Refusal("conflict", f"this is a token and no session: DELETE /api/v1/tokens/{account.token} revokes it")
    await hand_over(context, caller_of(request, account), RevokeToken(account.token))
    response = Response(status_code=204)
    drop_cookie(response, request, context.options)
    return response


async def _opening(body: SessionBody, request: Request, context: Context) -> Account:
    """The account that a session is opened for, by a token of its own or a password."""
    if body.token is not None:
        account = await context.account(body.token)
        if account is None or account.session_until_ms is not None:
            raise Refusal("unauthenticated", "this token is not valid")
        return account
    caller = await checked_user(context, request, body.user or "", body.password or "")
    return Account(caller.user, ())


def _terms(opening: Account) -> tuple[str, int, str | None, int]:
    """The scopes of a session, when it ends unless it is used, what it is opened with, and when it ends at last."""
    now_ms = wall_ms()
    until_ms = min(now_ms + MOST_MS, opening.expires_ms or now_ms + MOST_MS)
    scopes = text_of(opening.scopes) if opening.token else ALL_SCOPES
    return scopes, end_ms(now_ms, until_ms), opening.token or None, until_ms


async def _end_before(request: Request, context: Context) -> None:
    """Ends the session that the browser had: its cookie is about to be another's."""
    before = await session_of(request, context)
    if before is not None:
        await context.engine.ask(caller_of(request, before), RevokeToken(before.token))


def _file_of(context: Context, is_known: bool) -> dict[str, object] | None:
    """The journal that is shown; to strangers nothing but that there is one."""
    shown = context.options.shown
    if shown is None:
        return None
    told: dict[str, object] = msgspec.to_builtins(shown if is_known else Shown("", 0, 0))
    return told


def _shown(account: Account, token: str) -> dict[str, object]:
    roles = [role for role in reversed(Role) if any(grant.role is role for grant in account.grants)]
    return {
        **shown_account(account),
        "role": roles[0].value if roles else None,
        "csrf": csrf_of(token),
        "expires_ms": account.expires_ms,
        "until_ms": account.session_until_ms,
        "file": None,
    }
