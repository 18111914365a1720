"""HTTP/1.1 over one connection that is kept open, as much of it as talking to a server of ours takes.

The standard library's client parses headers by its mail package: to load that takes longer than all that a verb does.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from io import BufferedReader
    from ssl import SSLContext

LINE_BYTES_MAX, HEADERS_MAX = 65_536, 200
PORTS, PORT_MAX = {"http": 80, "https": 443}, 65_535
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
BODILESS = (204, 304)


class HttpError(Exception):
    """An answer that is none, or that breaks off."""


class Address(NamedTuple):
    """Where a server is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Url(NamedTuple):
    """Where a server is, how it is spoken to, and the path that all of its own begin with."""

    scheme: str
    address: Address
    path: str


def url_of(text: str) -> Url | None:
    """An address such as `https://host:8470/prefix`; None if it is none. `urllib.parse` is slow to load."""
    scheme, _, rest = text.partition("://")
    place, slash, path = rest.partition("/")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, str(PORTS.get(scheme, ""))
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_host = bool(host) and host.isprintable() and not any(sign in host for sign in "[]@?# ")
    if scheme not in PORTS or not is_host or is_bracketed != (":" in host):
        return None
    if not port.isdecimal() or int(port) > PORT_MAX:
        return None
    return Url(scheme, Address(host.lower(), int(port)), slash + path)


def quoted(text: str) -> str:
    """A text as a part of a path or a query."""
    return "".join(chr(byte) if byte in UNRESERVED else f"%{byte:02X}" for byte in text.encode())


class Connection:
    """A connection to a server, opened by the first request and by each after the server has ended it."""

    def __init__(self, address: Address, trust: SSLContext | None = None) -> None:
        self._address = address
        self._trust = trust
        self._socket: socket.socket | None = None
        self._file: BufferedReader | None = None
        self._response: Response | None = None

    def ask(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float | None
    ) -> Response:
        """Sends a request; the answer's body is yet to be read. Each wait for the server takes at most `timeout_s`."""
        if self._response is not None and not self._response.can_go_on:
            self.close()
        line, file = self._opened(timeout_s)
        length = {"Content-Length": str(len(body or b""))} if body is not None or method != "GET" else {}
        said = {"Host": str(self._address), **length, **headers}
        head = "".join([f"{method} {target} HTTP/1.1\r\n", *(f"{name}: {value}\r\n" for name, value in said.items())])
        if any(sign in f"{target}{value}" for value in said.values() for sign in "\r\n"):
            raise HttpError("a header or an address with a line break cannot be sent")
        line.sendall(f"{head}\r\n".encode("latin-1") + (body or b""))
        self._response = _response(file)
        return self._response

    def _opened(self, timeout_s: float | None) -> tuple[socket.socket, BufferedReader]:
        if self._socket is None or self._file is None:
            # As bytes where it can be: for a text, Python loads the tables of international names.
            host: Any = self._address.host.encode() if self._address.host.isascii() else self._address.host
            line = socket.create_connection((host, self._address.port), timeout_s)
            try:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._trust is not None:
                    line = self._trust.wrap_socket(line, server_hostname=self._address.host)
            except BaseException:
                line.close()
                raise
            self._socket, self._file = line, line.makefile("rb")
        self._socket.settimeout(timeout_s)
        return self._socket, self._file

    def close(self) -> None:
        """Ends the connection."""
        for each in (self._file, self._socket):
            if each is not None:
                each.close()
        self._socket = self._file = self._response = None


class Response:
    """An answer: its status, and a body that is read once."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str], file: BufferedReader) -> None:
        self.status = status
        self.reason = reason
        self._file = file
        self._is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._closes = headers.get("connection", "").lower() == "close"
        self._is_between = False
        self._left = self._length(headers)

    def _length(self, headers: Mapping[str, str]) -> int | None:
        """How many bytes are to come, of the first chunk or in all; None: all until the end."""
        if self.status in BODILESS:
            return 0
        if self._is_chunked:
            return self._next_chunk()
        said = headers.get("content-length")
        if said is None:
            self._closes = True
            return None
        if not said.isdecimal():
            raise HttpError(f"a Content-Length of {said!r}")
        return int(said)

    @property
    def can_go_on(self) -> bool:
        """Whether the connection is good for another request: all of this answer has been read."""
        return self._left == 0 and not self._is_between and not self._closes

    def read(self) -> bytes:
        """All that is left of the body."""
        return b"".join(iter(lambda: self.read1(LINE_BYTES_MAX), b""))

    def read1(self, count_max: int) -> bytes:
        """Some of the body as soon as there is some; nothing at its end."""
        if self._is_between:
            self._is_between = False
            self._left = self._next_chunk()
        if self._left == 0:
            return b""
        piece = self._file.read1(count_max if self._left is None else min(count_max, self._left))
        if self._left is None:
            return bytes(piece)
        if not piece:
            raise HttpError("the answer broke off")
        self._left -= len(piece)
        if not self._left and self._is_chunked:
            if self._file.readline(LINE_BYTES_MAX) not in (b"\r\n", b"\n"):
                raise HttpError("a chunk of another length than it said")
            # The next is waited for when it is asked for: a server that has nothing to say yet keeps nothing back.
            self._is_between = True
        return bytes(piece)

    def _next_chunk(self) -> int:
        """The length of the next chunk; 0 for the last, with the headers behind it read."""
        line = _line(self._file)
        try:
            size = int(line.partition(";")[0], 16)
        except ValueError:
            raise HttpError(f"a chunk of length {line[:20]!r}") from None
        if size == 0:
            _headers(self._file)
        return size


def _response(file: BufferedReader) -> Response:
    while True:
        version, _, rest = _line(file).partition(" ")
        status, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not status.isdecimal():
            raise HttpError("an answer that is not HTTP")
        headers = _headers(file)
        if not 100 <= int(status) < 200:
            return Response(int(status), reason, headers, file)


def _headers(file: BufferedReader) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(HEADERS_MAX):
        line = _line(file)
        if not line:
            return found
        name, _, value = line.partition(":")
        found[name.strip().lower()] = value.strip()
    raise HttpError(f"more than {HEADERS_MAX} headers")


def _line(file: BufferedReader) -> str:
    line = file.readline(LINE_BYTES_MAX + 1)
    if not line.endswith(b"\n"):
        raise HttpError("a line that is too long" if line else "the server hung up")
    return line.decode("latin-1").rstrip("\r\n")
