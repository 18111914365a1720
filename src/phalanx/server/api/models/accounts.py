"""Accounts, sessions, tokens, secrets and the audit log, as the API answers with them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from phalanx.server.api.models.base import Answered


class GrantModel(Answered):
    """A role in a queue and everything below it; the empty queue is the root."""

    queue: str
    role: Literal["viewer", "member", "operator", "admin"]


class MeModel(Answered):
    """The user, the roles and the scopes of the caller."""

    user: str
    roles: list[GrantModel]
    scopes: list[str]


class FileModel(Answered):
    """A journal that `phalanx view` shows, and the moments of its first and last record."""

    name: str
    first_ms: int
    last_ms: int


class SessionModel(Answered):
    """The session of a browser; every key is null, or empty, where there is none."""

    user: str | None
    role: Literal["viewer", "member", "operator", "admin"] | None = Field(
        description="The highest role that the user has in any queue; what holds where is in `roles`."
    )
    roles: list[GrantModel]
    scopes: list[str]
    csrf: str | None = Field(description="What every change by the cookie sends as the header X-CSRF-Token.")
    expires_ms: int | None = Field(description="When it ends if nothing more is asked for.")
    until_ms: int | None = Field(description="When it ends at the latest.")
    file: FileModel | None = Field(description="The journal that is shown, in place of a server's own state.")


class UserModel(Answered):
    """A user."""

    name: str
    disabled: bool
    has_password: bool
    created_ms: int
    unix_user: str = Field(description="The Unix user that their tasks run as; empty: none of their own.")
    roles: list[GrantModel]


class UserListModel(Answered):
    """All users."""

    items: list[UserModel]
    next: str | None = None


class TokenModel(Answered):
    """A token, without its secret."""

    id: str
    user: str
    name: str
    scopes: list[str]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    parent: str | None
    session_until_ms: int | None = Field(
        description="Of a session of a browser: when it ends at the latest; null for a token."
    )


class TokenListModel(Answered):
    """Tokens."""

    items: list[TokenModel]
    next: str | None = None


class NewTokenModel(Answered):
    """A new token. The secret is shown once."""

    id: str
    token: str
    user: str
    name: str
    scopes: list[str]
    expires_ms: int | None
    parent: str | None


class RevokedModel(Answered):
    """A token that was revoked, and how many were with it: itself, and those that were made with it."""

    id: str
    revoked: int


class SecretGrantModel(Answered):
    """Jobs of this queue, with all below it, and of this user may use a secret. Empty is every queue, or every user."""

    queue: str
    user: str


class SecretModel(Answered):
    """A secret, without its value."""

    name: str
    grants: list[SecretGrantModel]
    has_value: bool = Field(description="Whether its file is there.")
    created_ms: int | None = Field(description="Null for one that was put into the folder by hand.")
    updated_ms: int | None


class SecretListModel(Answered):
    """Secrets."""

    items: list[SecretModel]
    next: str | None = None


class AuditModel(Answered):
    """A change: its user, target, time and origin."""

    number: int
    at_ms: int
    user: str
    token: str
    origin: str
    verb: str
    target: str
    detail: str
    outcome: str


class AuditListModel(Answered):
    """A page of the audit log, the newest first."""

    items: list[AuditModel]
    next: str | None
