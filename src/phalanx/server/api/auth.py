"""Who asks: from the header or, to look only, from the cookie of a browser."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from phalanx.server.accounts.roles import Account
from phalanx.server.accounts.tokens import ATTEMPT_PREFIX, AttemptToken, read_attempt_token
from phalanx.server.api.context import Context, context_of
from phalanx.server.loop.wire import Caller
from phalanx.server.refusal import Refusal

COOKIE = "phalanx_session"
SAFE = ("GET", "HEAD")
TOKEN_MAX = 300
ORIGIN_MAX = 64

bearer = HTTPBearer(auto_error=False, scheme_name="token", description="A token, from `phalanx tokens` or `login`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
WorkerContext = Annotated[Context, Depends(context_of)]


async def account_of(request: Request, context: WorkerContext, credentials: Credentials) -> Account:
    """The account behind a request; without one it is refused."""
    token = _token_of(request, credentials)
    account = await context.account(token) if token else None
    if account is None:
        raise Refusal("unauthenticated", "expected a valid token in the header 'Authorization: Bearer TOKEN'")
    request.state.user = account.user
    request.state.token = token
    return account


async def attempt_of(request: Request, context: WorkerContext, credentials: Credentials) -> AttemptToken:
    """The attempt that reports on itself."""
    token = _token_of(request, credentials)
    attempt = read_attempt_token(await context.secret(), token) if token.startswith(ATTEMPT_PREFIX) else None
    if attempt is None:
        raise Refusal("unauthenticated", "expected the token of an attempt, as in PHALANX_PROGRESS_TOKEN")
    return attempt


def caller_of(request: Request, account: Account) -> Caller:
    """Who asks, as the audit log keeps it."""
    return Caller(account.user, account.token, origin_of(request))


def origin_of(request: Request) -> str:
    """The address that a request comes from: the caller's own, or what a named proxy says it is."""
    return request.client.host[:ORIGIN_MAX] if request.client else ""


def _token_of(request: Request, credentials: HTTPAuthorizationCredentials | None) -> str:
    token = credentials.credentials if credentials is not None else ""
    if not token and request.method in SAFE:
        # Other sites can have a browser send its cookie, so it must not be enough to change anything.
        token = request.cookies.get(COOKIE, "")
    return token if len(token) <= TOKEN_MAX else ""


SignedIn = Annotated[Account, Depends(account_of)]
Reporting = Annotated[AttemptToken, Depends(attempt_of)]
