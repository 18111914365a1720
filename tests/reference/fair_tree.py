"""Slurm's Fair Tree as its documentation describes it: sort by level fairshare, walk depth first, count ranks down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

FIRST = Fraction(10**30)
"""The level fairshare of who has used nothing."""


@dataclass
class Account:
    """An account or, with nothing inside, a user."""

    shares: int
    usage: int = 0
    inside: dict[str, Account] = field(default_factory=dict)
    level: Fraction = FIRST

    def settle(self) -> None:
        """Sums usage up and works out every level fairshare."""
        for each in self.inside.values():
            each.settle()
        if self.inside:
            self.usage = sum(each.usage for each in self.inside.values())
        shares = sum(each.shares for each in self.inside.values())
        for each in self.inside.values():
            if each.usage:
                each.level = Fraction(each.shares, shares) / Fraction(each.usage, self.usage)


def factors(root: Account) -> dict[str, Fraction]:
    """The fairshare factor of every user, by path."""
    root.settle()
    ranks: dict[str, int] = {}
    count = _users(root)
    _walk([("", root)], ranks, {"rank": count, "next": count}, tied=False)
    return {path: Fraction(rank, count) for path, rank in ranks.items()}


def _users(account: Account) -> int:
    return sum(map(_users, account.inside.values())) if account.inside else 1


def _walk(accounts: list[tuple[str, Account]], ranks: dict[str, int], counter: dict[str, int], tied: bool) -> None:
    children = [
        (f"{path}/{name}".lstrip("/"), child) for path, account in accounts for name, child in account.inside.items()
    ]
    # Users go before accounts of the same level.
    children.sort(key=lambda child: (-child[1].level, bool(child[1].inside)))
    done = 0
    while done < len(children):
        path, child = children[done]
        if done:
            tied = children[done - 1][1].level == child.level
        if not child.inside:
            if not tied:
                counter["rank"] = counter["next"]
            ranks[path] = counter["rank"]
            counter["next"] -= 1
            done += 1
            continue
        equals = [each for each in children[done:] if each[1].level == child.level]
        _walk(equals, ranks, counter, tied)
        done += len(equals)


def weights(root: Account, path: str = "") -> Mapping[str, int]:
    """The shares of every account and user, by path."""
    found: dict[str, int] = {}
    for name, child in root.inside.items():
        inner = f"{path}/{name}".lstrip("/")
        found[inner] = child.shares
        found.update(weights(child, inner))
    return found
