"""What routes answer with, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from phalanx.server.api.models.base import ErrorModel
from phalanx.server.refusal import STATUS

READ = ("unauthenticated", "forbidden", "not_found", "conflict", "invalid", "rate_limited", "unavailable")
"""Errors that every route may answer with."""

ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorModel"}}}
LIST = (*READ, "bad_request")
WRITE = (*LIST, "precondition_failed", "too_large", "unsupported_media", "storage_full")


def answers(
    model: type[BaseModel], codes: tuple[str, ...] = READ, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: its own, and errors. Those are named, not built anew: that takes half of a start."""
    return {
        status: {"model": model},
        **{STATUS[code]: {"content": ERROR, "description": code.replace("_", " ")} for code in codes},
    }


def content(media: str, codes: tuple[str, ...] = READ, schema: str = "string") -> dict[int | str, dict[str, Any]]:
    """The answers of a route that sends something else than JSON."""
    return {
        **answers(ErrorModel, codes),
        200: {"content": {media: {"schema": {"type": schema}}}, "description": "as asked for"},
    }
