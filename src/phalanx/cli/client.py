"""The client of the REST API. It stands on the standard library: a verb is one process, and must start fast."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.context import Context, current_context
from phalanx.cli.exit import Exit
from phalanx.cli.http import Connection, HttpError, Response, quoted, url_of
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    import ssl

BASE = "/api/v1"
PATIENCE_S = 60.0
TRIES_MAX = 4
PAUSE_FIRST_S = 0.1
PIECE_BYTES = 65536
NAME_MAX, NAME_SHOWN = 253, 60
"""The longest name of a job: `document.field` has it, and would load YAML."""
NO_PHALANX = "which no phalanx would answer; is PHALANX_ADDR right?"
LOG_IN = "run `phalanx login`, or set PHALANX_TOKEN_FILE"

Query = Mapping[str, str | int | bool | None]


class ServerError(PhalanxError):
    """The server answered with an error that is not the caller's."""


class Answer(dict[str, Any]):
    """What a server answered. One of another kind at the same address may answer something else."""

    def __init__(self, content: dict[str, Any], stranger: str) -> None:
        super().__init__(content)
        self._stranger = stranger

    def __missing__(self, name: str) -> Any:
        raise ServerError(self._stranger)


class NotFound(PhalanxError):  # noqa: N818
    """The server knows no such thing."""

    exit_code = Exit.NOT_FOUND


class Refused(PhalanxError):  # noqa: N818
    """The server does not do it. `index` is which of several things it does not take, where it says so."""

    exit_code = Exit.REFUSED

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class Unreachable(PhalanxError):  # noqa: N818
    """There is no answer, or a server that is not ready."""

    exit_code = Exit.UNREACHABLE


REFUSALS = (400, 401, 403, 409, 412, 413, 415, 422, 429, 507)


class Client:
    """A server, spoken to over one connection that is kept open."""

    def __init__(self, context: Context, patience_s: float = PATIENCE_S, tries_max: int = TRIES_MAX) -> None:
        self.context = context
        self._patience_s = patience_s
        self._tries_max = tries_max
        url = url_of(context.addr)
        if url is None:
            raise Unreachable(f"address '{context.addr}': expected http://HOST:PORT or https://HOST:PORT")
        self._url = url
        self._connection: Connection | None = None

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine, and sees the same files."""
        return self._url.address.host in ("127.0.0.1", "localhost", "::1")

    def get(self, path: str, **query: str | int | bool | None) -> Any:
        """What is at a path."""
        return self._ask("GET", path, query)

    def post(self, path: str, body: object = None) -> Any:
        """Asks for a change. One that makes something is made once, however often it has to be sent."""
        return self._ask("POST", path, {}, body, {"Idempotency-Key": uuid.uuid4().hex})

    def post_yaml(self, path: str, text: str, **query: str | int | bool | None) -> Any:
        """Hands over a file as it is."""
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Content-Type": "application/yaml"}
        return self._ask("POST", path, query, text.encode(), headers)

    def put_yaml(self, path: str, text: str, **query: str | int | bool | None) -> Any:
        """Replaces something by a file."""
        return self._ask("PUT", path, query, text.encode(), {"Content-Type": "application/yaml"})

    def change(self, method: str, path: str, body: object = None, **query: str | int | bool | None) -> Any:
        """PUT, PATCH or DELETE."""
        return self._ask(method, path, query, body)

    def items(self, path: str, count_max: int, **query: str | int | bool | None) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None and count_max > 0:
            page = self.get(path, **{**query, "limit": min(count_max, 1000), "cursor": cursor or None})
            yield from page["items"][:count_max]
            count_max -= len(page["items"])
            cursor = page.get("next")

    def stream(self, path: str, **query: str | int | bool | None) -> Iterator[bytes]:
        """What a path goes on sending, as it comes."""
        response = self._send("GET", path, query, None, {}, timeout_s=None)
        try:
            while piece := response.read1(PIECE_BYTES):
                yield piece
        except (OSError, HttpError) as error:
            self.close()
            self._need_token()
            raise Unreachable(
                f"{self.context.addr}: the connection was lost ({error or type(error).__name__})"
            ) from None
        finally:
            if not response.can_go_on:
                self.close()

    def _need_token(self) -> None:
        """Tells of a token that is no longer good: the server cuts what goes on under it."""
        asking = Client(self.context, self._patience_s, tries_max=1)
        try:
            asking.get("/me")
        except Unreachable:
            return
        finally:
            asking.close()

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self, method: str, path: str, query: Query, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """An answer as data. What is harmless to repeat is repeated while the server has no time or goes away."""
        repeatable = method in ("GET", "PUT", "DELETE") or "Idempotency-Key" in (headers or {})
        for attempt in range(1, self._tries_max + 1):
            try:
                response = self._send(method, path, query, body, headers or {}, self._patience_s)
                return self._data_of(response)
            except (HttpError, ConnectionError, Unreachable) as error:
                self.close()
                if (
                    attempt == self._tries_max
                    or not repeatable
                    or isinstance(error.__context__, ConnectionRefusedError)
                ):
                    raise self._unreachable(error) from None
                time.sleep(PAUSE_FIRST_S * 4 ** (attempt - 1))
            except TimeoutError:
                self.close()
                raise Unreachable(f"{self.context.addr}: no answer within {self._patience_s:.0f} s") from None
        raise AssertionError("the last try returns or raises")

    def _data_of(self, response: Response) -> Any:
        content = response.read()
        if not content:
            return None
        stranger = f"{self.context.addr}: {response.status} {response.reason}, {NO_PHALANX}"
        try:
            answer = json.loads(content)
        except ValueError:
            raise ServerError(stranger) from None
        return Answer(answer, stranger) if isinstance(answer, dict) else answer

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        headers: Mapping[str, str],
        timeout_s: float | None,
    ) -> Response:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body, ensure_ascii=False).encode()
        sent = {"Accept": "application/json", **headers}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        if self.context.token:
            sent["Authorization"] = f"Bearer {self.context.token}"
        try:
            target = f"{self._url.path}{BASE}{path}{_query(query)}"
            response = self._open().ask(method, target, content, sent, timeout_s)
        except (OSError, HttpError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise self._unreachable(error) from error
        if response.status >= 400:
            raise self._error(response, path)
        return response

    def _open(self) -> Connection:
        if self._connection is None:
            secure = self._url.scheme == "https"
            self._connection = Connection(self._url.address, trusted(self.context) if secure else None)
        return self._connection

    def _unreachable(self, error: BaseException) -> Unreachable:
        if isinstance(error, Unreachable):
            return error
        if "ssl" in sys.modules:
            from ssl import SSLCertVerificationError, SSLError

            if isinstance(error, SSLCertVerificationError):
                return untrusted(self.context, error)
            if isinstance(error, SSLError) and error.reason == "WRONG_VERSION_NUMBER":
                return Unreachable(f"{self.context.addr}: what answers there does not speak HTTPS; is it http://…?")
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return Unreachable(
            f"{self.context.addr}: {reason}; start a server with `phalanx up`, or say where it is with PHALANX_ADDR"
        )

    def _error(self, response: Response, path: str) -> PhalanxError:
        message, detail = self._told_in(response)
        if response.status == 404:
            return NotFound(message)
        if response.status == 401 and path != "/login":
            what = "PHALANX_TOKEN is set: correct or unset it" if os.environ.get("PHALANX_TOKEN") else LOG_IN
            return Refused(f"{message}; {what}")
        if response.status in REFUSALS:
            return Refused(message, detail.get("index"))
        if response.status == 503:
            return Unreachable(f"{self.context.addr}: {message}")
        return ServerError(f"{self.context.addr}: {message}")

    def _told_in(self, response: Response) -> tuple[str, dict[str, Any]]:
        """What a response says that is an error, and its detail."""
        content = response.read()
        try:
            told = json.loads(content)
            return str(told["message"]), dict(told.get("detail") or {})
        except (ValueError, KeyError, TypeError):
            told = f"{response.status} {response.reason}, {NO_PHALANX}"
            return told, {}


def connect(context: Context | None = None) -> Client:
    """A client for a context, or for the one in use, whose connection ends with the verb."""
    client = Client(context or current_context())
    verb = click.get_current_context(silent=True)
    if verb is not None:
        verb.call_on_close(client.close)
    return client


def trusted(context: Context) -> ssl.SSLContext:
    """The system's certificates, and those of the context's file: each vouches for itself and what it has signed."""
    import ssl

    trust = ssl.create_default_context()
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        if context.ca_file:
            trust.load_verify_locations(context.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Unreachable(f"certificates in {context.ca_file}: {error.strerror or error}") from None
    return trust


def untrusted(context: Context, error: ssl.SSLCertVerificationError) -> Unreachable:
    """What to do about a server whose certificate is not trusted."""
    return Unreachable(
        f"{context.addr}: {error.verify_message}; if it is yours, say which certificates to trust with PHALANX_CA_FILE "
        "or `phalanx login --ca-file`"
    )


def job_path(job: str, what: str = "") -> str:
    """The path of a job by its id or name."""
    if len(job) > NAME_MAX:
        raise NotFound(f"there is no job {job[:NAME_SHOWN]!r}…: names have at most {NAME_MAX} characters")
    return f"/jobs/{quoted(job)}{what}"


def _query(query: Query) -> str:
    given = [
        f"{name}={quoted(str(value).lower() if isinstance(value, bool) else str(value))}"
        for name, value in query.items()
        if value is not None and value != ""
    ]
    return f"?{'&'.join(given)}" if given else ""
