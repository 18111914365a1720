"""Pages of lists: cursors, and what a list looks like."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any

import msgspec
from fastapi import Query, Response

from phalanx.server.refusal import Refusal

LIMIT_MAX = 1_000

Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="The most items of a page.")]
Cursor = Annotated[str, Query(max_length=200, description="The `next` of the page before.")]


def cursor_of(place: int | None) -> str | None:
    """The cursor of a place; callers must not read anything into it."""
    return None if place is None else urlsafe_b64encode(f"v1:{place}".encode()).decode().rstrip("=")


def place_of(cursor: str) -> int | None:
    """The place of a cursor."""
    if not cursor:
        return None
    try:
        version, _, place = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().partition(":")
        if version == "v1" and 0 <= int(place) < 1 << 62:
            return int(place)
    except (ValueError, UnicodeDecodeError):
        pass
    raise Refusal("bad_request", "expected as cursor the `next` of the page before")


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A value as a response."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def as_list(items: list[Any], place: int | None = None) -> Response:
    """A page of a list."""
    return as_json({"items": items, "next": cursor_of(place)})
