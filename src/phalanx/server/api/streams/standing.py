"""The standing of a caller: whether a connection that stays open is still the caller's by right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from phalanx.server.accounts.roles import Account
from phalanx.server.api.context import Context
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import StoreError

LOOK_S = 0.25
"""How often a standing is looked at. The worker keeps accounts while none changes, so that a look costs little."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A token and the right that a connection needs. The account behind the token is looked up again and again."""

    context: Context
    token: str
    right: Callable[[Account], bool]

    async def account(self) -> Account:
        """The account as it is now; refused once the token or the right is gone."""
        account = await self.context.account(self.token)
        if account is None:
            raise Refusal("unauthenticated", "the token was revoked or has expired, or its user may no longer log in")
        if not self.right(account):
            raise Refusal("forbidden", f"{account.user} no longer has the role that this needs")
        return account

    async def lost(self) -> Refusal:
        """Waits until the caller has lost the right, and says why. What cannot be looked up counts as lost."""
        while True:
            try:
                await self.account()
            except Refusal as refusal:
                return refusal
            except StoreError:
                return Refusal("unavailable", "the store cannot be read, so the token cannot be checked: try again")
            await asyncio.sleep(LOOK_S)
