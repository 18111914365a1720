"""Roles: what a user may do in a queue and everything below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ROOT = ""
"""The queue above all queues: a role here is a role everywhere."""


class Role(StrEnum):
    """What a user is in a queue. Each may do what the ones before it may."""

    VIEWER = "viewer"
    MEMBER = "member"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, other: Role) -> bool:
        """Whether it includes another role."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Scope(StrEnum):
    """What a token may be used for, whatever its user may do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


ALL_SCOPES = tuple(Scope)

NEEDED_SCOPE = {
    Role.VIEWER: Scope.READ,
    Role.MEMBER: Scope.WRITE,
    Role.OPERATOR: Scope.WRITE,
    Role.ADMIN: Scope.ADMIN,
}


def lies_in(queue: str, root: str) -> bool:
    """Whether a queue is another or lies below it."""
    return root == ROOT or queue == root or queue.startswith(root + "/")


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in a queue and everything below it."""

    queue: str
    role: Role


@dataclass(frozen=True, slots=True)
class Account:
    """The caller, as far as it matters for what it may do."""

    user: str
    grants: tuple[Grant, ...]
    scopes: tuple[Scope, ...] = ALL_SCOPES
    token: str = ""
    expires_ms: int | None = None
    """When its token ends; None if it does not."""
    parent: str | None = None
    """The token that its token was made with."""
    parent_ends_ms: int | None = None
    """When that one ends; None if it does not, or there is none."""
    session_until_ms: int | None = None
    """Of a session of a browser: when it ends at the latest, however much it is used."""

    def may(self, role: Role, queue: str = ROOT) -> bool:
        """Whether they are at least that in a queue, and their token lets them be."""
        return self._scoped(role) and any(
            grant.role.covers(role) and lies_in(queue, grant.queue) for grant in self.grants
        )

    def role_in(self, queue: str) -> Role | None:
        """The highest role that they have in a queue and their token lets them act in; None if they have none."""
        return next((role for role in reversed(Role) if self.may(role, queue)), None)

    def may_change(self, queue: str, user: str) -> bool:
        """Whether they may change a job: members their own, operators all of theirs."""
        return self.may(Role.OPERATOR, queue) or (user == self.user and self.may(Role.MEMBER, queue))

    def sees(self, queue: str) -> bool:
        """Whether they may look at the jobs of a queue."""
        return self.may(Role.VIEWER, queue)

    @property
    def seen_queues(self) -> Sequence[str]:
        """The queues whose jobs they may look at, with all below; the root stands for all."""
        return tuple(dict.fromkeys(grant.queue for grant in self.grants)) if Scope.READ in self.scopes else ()

    def _scoped(self, role: Role) -> bool:
        return NEEDED_SCOPE[role] in self.scopes


def scopes_of(text: str) -> tuple[Scope, ...]:
    """Scopes as they are stored."""
    return tuple(Scope(word) for word in text.split(",") if word)


def text_of(scopes: Iterable[Scope]) -> str:
    """Scopes as they are stored."""
    given = tuple(scopes)
    return ",".join(scope.value for scope in Scope if scope in given)
