"""Limits beside the cells themselves: quotas of users, and how much a cluster may borrow."""

from __future__ import annotations

from phalanx.placement.cells.estate import Estate
from phalanx.placement.cells.request import Request


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
    """How much of what others own a cluster may use: leaves of all its groups that have no guarantee."""
    limit = estate.borrow_max[request.virtual_cluster]
    if limit is None:
        return ""
    borrowed = sum(
        len(group.leaves())
        for group in estate.groups.values()
        if group.request.virtual_cluster == request.virtual_cluster and not group.is_guaranteed
    )
    if borrowed + request.leaves <= limit:
        return ""
    owner = request.virtual_cluster
    return f"exceeded what '{owner}' may borrow: {borrowed} borrowed + {request.leaves} required > {limit}"
