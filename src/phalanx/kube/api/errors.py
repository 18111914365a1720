"""What an API server may answer instead of doing what it was asked for."""

from __future__ import annotations

from phalanx.errors import PhalanxError


class ConfigError(PhalanxError):
    """No API server is known, or not how to log in to it."""


class ApiError(PhalanxError):
    """An answer that is an error. `status` is its HTTP code, 0 where none came."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(ApiError):
    """No answer came: the server is down, or the connection broke."""


class UnauthorizedError(ApiError):
    """The credentials are not valid (401). Trying again cannot help."""


class ForbiddenError(ApiError):
    """The credentials do not allow it (403)."""


class NotFoundError(ApiError):
    """There is no such object (404)."""


class ConflictError(ApiError):
    """The object is another one than was meant (409)."""


class GoneError(ApiError):
    """The version that a watch was to resume from is compacted (410)."""


class InvalidError(ApiError):
    """What was written may not be, or a patch tests for what is not so (422)."""


class TooManyRequestsError(ApiError):
    """The server, or a disruption budget, has it tried later (429)."""


BY_STATUS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}
