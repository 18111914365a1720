"""Arrays: a reference to one stands for all its members."""

from __future__ import annotations

from typing import Any

from phalanx.cli.client import Client, NotFound, Refused, job_path
from phalanx.cli.job_rows import LIVE

MEMBERS_MAX = 100_000


def expanded(client: Client, ref: str) -> list[str]:
    """The ids of the members of an array, or the reference itself if it is to anything else."""
    try:
        client.get(job_path(ref))
    except NotFound:
        pass
    except Refused:
        members = members_of(client, ref)
        if not members:
            raise
        return [member["id"] for member in members]
    return [ref]


def members_of(client: Client, ref: str) -> list[dict[str, Any]]:
    """The members of an array by its id, or by a name that no other job has that is not over; else the newest of it."""
    if not ref.isdecimal():
        named = list(client.items("/jobs", MEMBERS_MAX, name=ref, state=LIVE)) or client.items("/jobs", 1, name=ref)
        arrays = {job["array_of"]: None for job in named}
        ref = next(iter(arrays)) if len(arrays) == 1 else ""
    return list(client.items("/jobs", MEMBERS_MAX, array_of=ref, order="oldest")) if ref else []
