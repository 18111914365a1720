"""What the API answers with, for its description. Requests are in `bodies`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Answered(BaseModel):
    """What everything the API answers with has in common: it has these keys and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorModel(Answered):
    """Every error. `code` is for programs, `message` for people."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"code": "not_found", "message": "there is no job '7'", "detail": None}},
    )
    code: str
    message: str
    detail: dict[str, Any] | None
