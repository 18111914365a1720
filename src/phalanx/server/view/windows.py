"""Maintenance windows of the past: those that began and are in the cluster no more, kept for the timeline."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection

from phalanx.server.store import settings

KEPT = 200
"""Past windows that are kept, the newest of all."""

PAST = "past maintenance"
Window = dict[str, Any]


def note_gone(connection: Connection, now_ms: int, present: list[Window]) -> None:
    """Keeps windows that began before now and are gone from the cluster; one that was taken back ended now."""
    before = msgspec.json.decode(settings.get(connection, "cluster") or b"{}").get("maintenance", [])
    begun = [each for each in before if each["start_ms"] < now_ms and not _is_among(each, present)]
    if begun:
        cut = [{**each, "end_ms": min(each["end_ms"], now_ms)} for each in begun]
        settings.put(connection, PAST, msgspec.json.encode([*_past(connection), *cut][-KEPT:]))


def windows(connection: Connection, since_ms: int, now_ms: int) -> list[Window]:
    """The windows that end after a moment, past and planned, in the order of time."""
    present = msgspec.json.decode(settings.get(connection, "cluster") or b"{}").get("maintenance", [])
    # A past moment knows only what had begun by then, and of what was taken back later that it was planned on.
    past = [each for each in _past(connection) if each["start_ms"] < now_ms and not _is_among(each, present)]
    found = [each for each in (*past, *present) if each["end_ms"] > since_ms]
    return sorted(found, key=lambda each: (each["start_ms"], each["name"]))


def _past(connection: Connection) -> list[Window]:
    found: list[Window] = msgspec.json.decode(settings.get(connection, PAST) or b"[]")
    return found


def _is_among(window: Window, others: list[Window]) -> bool:
    """Whether a window is there still, perhaps with another end."""
    same = ("name", "nodes", "start_ms")
    return any(all(window[key] == other[key] for key in same) for other in others)
