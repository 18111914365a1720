"""Renewals of sessions: one that is used does not end for a while. No request waits for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from phalanx.server.accounts.roles import Account
from phalanx.server.accounts.sessions import is_due
from phalanx.server.api.engine import Engine
from phalanx.server.clock import wall_ms
from phalanx.server.loop.wire import Caller, RenewSession
from phalanx.server.refusal import Refusal


@dataclass(slots=True)
class Renewals:
    """The renewals of a worker that are under way, by session: there is never more than one of each."""

    engine: Engine
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def note(self, account: Account, origin: str) -> None:
        """Takes note that a session is used."""
        until_ms, expires_ms = account.session_until_ms, account.expires_ms
        if until_ms is None or expires_ms is None or account.token in self._under_way:
            return
        if is_due(wall_ms(), expires_ms, until_ms):
            caller = Caller(account.user, account.token, origin)
            self._under_way[account.token] = asyncio.create_task(self._renew(caller))

    async def _renew(self, caller: Caller) -> None:
        try:
            # Where the loop is away, the next request tries again.
            with suppress(Refusal):
                await self.engine.ask(caller, RenewSession(caller.token))
        finally:
            self._under_way.pop(caller.token, None)
