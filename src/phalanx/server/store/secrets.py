"""Looking secrets up: their names, their grants and when they were set; never their values."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from phalanx.server.accounts.roles import Account, Role
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.secrets.grants import all_grants
from phalanx.server.store.tables import secrets


def list_secrets(connection: Connection, folder: SecretFolder, account: Account) -> list[dict[str, Any]]:
    """All secrets for an admin; for every other user those that its jobs may use, by the grants that let them."""
    rows = {row.name: row for row in connection.execute(select(secrets))}
    grants, kept = all_grants(connection), set(folder.names())
    is_admin = account.may(Role.ADMIN)
    items = []
    for name in sorted({*rows, *grants, *kept}):
        shown = [grant for grant in grants.get(name, ()) if is_admin or grant.serves(account)]
        if not shown and not is_admin:
            continue
        row = rows.get(name)
        items.append(
            {
                "name": name,
                "grants": [{"queue": grant.queue, "user": grant.user} for grant in shown],
                "has_value": name in kept,
                "created_ms": row.created_ms if row is not None else None,
                "updated_ms": row.updated_ms if row is not None else None,
            }
        )
    return items
