"""Grants: which jobs may use a secret, by their queue and their user."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from phalanx.server.accounts.roles import Account, Role, lies_in
from phalanx.server.store.tables import secret_grants


@dataclass(frozen=True, slots=True)
class SecretGrant:
    """Lets jobs of a queue, with all below it, and of a user use a secret. Empty is every queue, or every user."""

    queue: str
    user: str

    def covers(self, queue: str, user: str) -> bool:
        """Whether it lets a job of this queue and user use the secret."""
        return lies_in(queue, self.queue) and self.user in ("", user)

    def serves(self, account: Account) -> bool:
        """Whether some job that the account may submit as its own could use the secret by it."""
        return self.user in ("", account.user) and any(
            role.role.covers(Role.MEMBER) and (lies_in(role.queue, self.queue) or lies_in(self.queue, role.queue))
            for role in account.grants
        )


def all_grants(connection: Connection) -> dict[str, list[SecretGrant]]:
    """The grants of all secrets that have any."""
    found: dict[str, list[SecretGrant]] = {}
    columns = secret_grants.c
    for row in connection.execute(select(secret_grants).order_by(columns.secret, columns.queue, columns.user)):
        found.setdefault(row.secret, []).append(SecretGrant(row.queue, row.user))
    return found
