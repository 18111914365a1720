"""The caller: from the header or, in a browser, from the cookie of a session."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from phalanx.server.accounts.roles import Account
from phalanx.server.accounts.sessions import is_csrf_of
from phalanx.server.accounts.tokens import ATTEMPT_PREFIX, AttemptToken, read_attempt_token
from phalanx.server.api.admission.browser import cookie_of, need_same_origin
from phalanx.server.api.context import Context, context_of
from phalanx.server.loop.wire import Caller
from phalanx.server.refusal import Refusal

SAFE = ("GET", "HEAD", "OPTIONS")
CSRF_HEADER = "X-CSRF-Token"
TOKEN_MAX = 300
ORIGIN_MAX = 64

bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token, from `phalanx tokens` or `login`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
WorkerContext = Annotated[Context, Depends(context_of)]


async def account_of(request: Request, context: WorkerContext, credentials: Credentials) -> Account:
    """The account behind a request; without one it is refused."""
    token = credentials.credentials if credentials is not None else ""
    account = await account_of_token(context, token) if token else await session_of(request, context)
    if account is None:
        raise Refusal("unauthenticated", "expected a valid token in the header 'Authorization: Bearer TOKEN'")
    if not token:
        token = cookie_of(request, context.options)
        _need_own_page(request, context, token)
        context.renewals.note(account, origin_of(request))
    request.state.user = account.user
    request.state.token = token
    return account


async def session_of(request: Request, context: Context) -> Account | None:
    """The account of the session that a browser's cookie stands for; None if there is none that lasts."""
    token = cookie_of(request, context.options)
    account = await context.account(token) if token and len(token) <= TOKEN_MAX else None
    return account if account is not None and account.session_until_ms is not None else None


async def account_of_token(context: Context, token: str) -> Account | None:
    """The account of a token. A session is for the browser that opened it: by the header it is worthless."""
    account = await context.account(token) if len(token) <= TOKEN_MAX else None
    return account if account is not None and account.session_until_ms is None else None


def _need_own_page(request: Request, context: Context, token: str) -> None:
    """Other sites can have a browser send its cookie, so it is not enough to change anything."""
    if request.method in SAFE:
        return
    need_same_origin(request, context.options)
    if not is_csrf_of(token, request.headers.get(CSRF_HEADER, "")):
        raise Refusal(
            "forbidden", f"a change by a browser's cookie needs the header {CSRF_HEADER}: `csrf` of GET /api/v1/session"
        )


async def attempt_of(request: Request, context: WorkerContext, credentials: Credentials) -> AttemptToken:
    """The attempt that reports on itself."""
    token = credentials.credentials if credentials is not None else ""
    attempt = None
    if token.startswith(ATTEMPT_PREFIX) and len(token) <= TOKEN_MAX:
        attempt = read_attempt_token(await context.secret(), token)
    if attempt is None:
        raise Refusal("unauthenticated", "expected the token of an attempt, as in PHALANX_PROGRESS_TOKEN")
    return attempt


def caller_of(request: Request, account: Account) -> Caller:
    """The caller, as the audit log keeps it."""
    return Caller(account.user, account.token, origin_of(request))


def origin_of(request: Request) -> str:
    """The address that a request comes from: the caller's own, or what a named proxy says it is."""
    return request.client.host[:ORIGIN_MAX] if request.client else ""


SignedIn = Annotated[Account, Depends(account_of)]
Reporting = Annotated[AttemptToken, Depends(attempt_of)]
