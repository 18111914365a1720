"""Prometheus: one number for one query. The operator says where it is; users say only what it is asked.

https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

import msgspec

TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 1 << 20
PROBLEM_MAX = 200


class QueryError(Exception):
    """A query came to no number; why, in a few words."""


class DownError(QueryError):
    """Prometheus itself cannot be asked: no other query would be answered either."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Asks nothing but what the operator named: an answer that leads elsewhere is an error."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        return None


_opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))


def ask(address: str, query: str, timeout_s: float = TIMEOUT_S) -> float:
    """The number that a query comes to now. It may be NaN, which the caller has to mind."""
    request = urllib.request.Request(
        f"{address}/api/v1/query", urllib.parse.urlencode({"query": query, "timeout": f"{timeout_s:g}s"}).encode()
    )
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            content = answer.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(error) from None
    except (OSError, HTTPException) as error:
        raise DownError(f"Prometheus cannot be asked: {str(error)[:PROBLEM_MAX]}") from None
    if len(content) > ANSWER_BYTES_MAX:
        raise QueryError(f"an answer of more than {ANSWER_BYTES_MAX >> 20} MiB: sum it up in the query")
    return number_of(content)


def _refused(error: urllib.error.HTTPError) -> QueryError:
    if error.code not in (400, 422):
        return DownError(f"Prometheus cannot be asked: it answers {error.code}")
    try:
        told = msgspec.json.decode(error.read(ANSWER_BYTES_MAX))["error"]
    except (msgspec.DecodeError, KeyError, TypeError, OSError):
        told = f"it answers {error.code}"
    return QueryError(f"Prometheus refuses the query: {str(told)[:PROBLEM_MAX]}")


def number_of(content: bytes) -> float:
    """The one number of an answer."""
    try:
        data: Any = msgspec.json.decode(content)["data"]
        kind, result = data["resultType"], data["result"]
        if kind == "scalar":
            return float(result[1])
        if kind == "vector" and len(result) == 1:
            return float(result[0]["value"][1])
        count = len(result)
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError):
        raise QueryError("the answer is not one of Prometheus; expected one number") from None
    if kind == "vector" and not count:
        raise QueryError("the query finds no series")
    if kind == "vector":
        raise QueryError(f"the query finds {count} series, expected one number: wrap it in sum(…)")
    raise QueryError(f"the query comes to a {str(kind)[:PROBLEM_MAX]}, expected one number")
