"""Refusals: what the server says no to, in one form for the loop, the API and its callers."""

from __future__ import annotations

from typing import Any

from phalanx.errors import PhalanxError

STATUS = {
    "bad_request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "timeout": 408,
    "conflict": 409,
    "precondition_failed": 412,
    "too_large": 413,
    "unsupported_media": 415,
    "invalid": 422,
    "rate_limited": 429,
    "header_too_large": 431,
    "internal": 500,
    "unavailable": 503,
    "storage_full": 507,
}
"""Every code an error may have, and the status of its response."""

CODES = {status: code for code, status in STATUS.items()}


class Refusal(PhalanxError):  # noqa: N818
    """Something the server does not do: `code` is for programs, the text for people."""

    def __init__(self, code: str, message: str, detail: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail

    @property
    def status(self) -> int:
        """The status of the response."""
        return STATUS[self.code]

    @property
    def body(self) -> dict[str, Any]:
        """The body of the response."""
        return {"code": self.code, "message": self.message, "detail": self.detail}
