"""Limits beside the cells themselves: quotas of users, and how much a cluster may borrow."""

from __future__ import annotations

from phalanx.placement.cells.request import Request
from phalanx.placement.cells.trees.estate import Estate


def exceeded(estate: Estate, request: Request) -> str:
    """What a request would exceed, with the arithmetic; empty if nothing."""
    return _over_borrowing(estate, request) if request.is_opportunistic else _over_quota(estate, request)


def _over_quota(estate: Estate, request: Request) -> str:
    """HiveD's quota of a user: leaves of guaranteed groups with the same tag, in all clusters that are not exempt."""
    exempt = estate.site.quota_exempt
    if request.quota is None or request.virtual_cluster in exempt:
        return ""
    used = sum(
        group.request.leaves
        for group in estate.groups.values()
        if group.request.quota is not None
        and group.request.quota.tag == request.quota.tag
        and not group.request.is_opportunistic
        and group.request.virtual_cluster not in exempt
    )
    if used + request.leaves <= request.quota.leaves_max:
        return ""
    return (
        f"exceeded user quota of '{request.quota.tag}': {used} used + {request.leaves} required "
        f"> {request.quota.leaves_max}"
    )


def _over_borrowing(estate: Estate, request: Request) -> str:
    """How much of what other clusters own a cluster may use: leaves of all its groups that have no guarantee."""
    owner = request.virtual_cluster
    if may_borrow(estate, owner, request.leaves):
        return ""
    return (
        f"exceeded what '{owner}' may borrow: {borrowed(estate, owner)} borrowed + {request.leaves} required "
        f"> {estate.borrow_max[owner]}"
    )


def may_borrow(estate: Estate, owner: str, leaves: int) -> bool:
    """Whether a cluster may have so many more leaves without guarantee. A cluster that is gone may have none."""
    limit = estate.borrow_max.get(owner, 0)
    return limit is None or borrowed(estate, owner) + leaves <= limit


def borrowed(estate: Estate, owner: str) -> int:
    """Leaves that a cluster has without guarantee."""
    return sum(
        len(group.leaves())
        for group in estate.groups.values()
        if group.request.virtual_cluster == owner and not group.is_guaranteed
    )
