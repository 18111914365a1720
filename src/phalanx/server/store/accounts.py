"""Looking users, tokens and the audit log up."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from phalanx.server.store.tables import audit, grants, tokens, users


def list_users(connection: Connection) -> list[dict[str, Any]]:
    """All users with their roles."""
    roles: dict[str, list[dict[str, str]]] = {}
    for row in connection.execute(select(grants).order_by(grants.c.queue)):
        roles.setdefault(row.user, []).append({"queue": row.queue, "role": row.role})
    return [
        {
            "name": row.name,
            "disabled": bool(row.disabled),
            "has_password": row.password is not None,
            "created_ms": row.created_ms,
            "unix_user": row.unix_user,
            "roles": roles.get(row.name, []),
        }
        for row in connection.execute(select(users).order_by(users.c.name))
    ]


def list_tokens(connection: Connection, user: str = "") -> list[dict[str, Any]]:
    """Tokens of a user, or of all, without their secrets."""
    query = select(tokens).order_by(tokens.c.created_ms, tokens.c.id)
    if user:
        query = query.where(tokens.c.user == user)
    return [
        {**{key: value for key, value in row._mapping.items() if key != "digest"}, "scopes": row.scopes.split(",")}
        for row in connection.execute(query)
    ]


def audit_page(connection: Connection, before: int | None, limit: int, user: str, target: str) -> list[dict[str, Any]]:
    """One page of the audit log, the newest first."""
    query = select(audit).order_by(audit.c.number.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.c.number < before)
    if user:
        query = query.where(audit.c.user == user)
    if target:
        query = query.where(audit.c.target == target)
    return [dict(row._mapping) for row in connection.execute(query)]
