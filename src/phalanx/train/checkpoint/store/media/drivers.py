"""What errors of the libraries behind fsspec mean: s3fs, gcsfs and the like raise some of their own beside OSError."""

from __future__ import annotations

from typing import Any

DRIVERS = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "urllib3")
"""Packages whose errors come from a store, or from the way to it."""

ACCESS_STATUS = (401, 403)
ACCESS_CODES = ("XAdminUserNotFound",)
"""Refusals that come with another status: an unknown key, as versitygw says it."""


def is_of_driver(error: BaseException) -> bool:
    """Whether a driver raised it as an error of its own kind, as botocore does where it finds no server."""
    return any(kind.__module__.partition(".")[0] in DRIVERS for kind in type(error).__mro__)


def is_refused_access(error: BaseException) -> bool:
    """Whether the store does not know the caller, does not believe it, or does not allow it."""
    if isinstance(error, PermissionError):
        return True
    if is_of_driver(error) and "Credentials" in type(error).__name__:
        return True
    answer = _answer(error)
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in ACCESS_STATUS or answer.get("Error", {}).get("Code") in ACCESS_CODES


def lacks_bucket(error: BaseException) -> bool:
    """Whether the bucket itself is not there."""
    return bool(_answer(error).get("Error", {}).get("Code") == "NoSuchBucket")


def _answer(error: BaseException) -> dict[str, Any]:
    """What an S3 server said; s3fs raises an OSError from it."""
    for each in (error, error.__cause__):
        answer = getattr(each, "response", None)
        if isinstance(answer, dict):
            return answer
    return {}
