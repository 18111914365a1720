"""HTTP/1.1 as uvicorn speaks it, with bounds: on headers, on the time a request takes to arrive, on connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from phalanx.server.refusal import Refusal

HEAD_BYTES_MAX = 64 << 10
"""How long the line and the headers of a request may be, with the trailers of its body."""

CONNECTIONS_MAX = 1_000
"""How many connections one address may have open at a worker. A proxy in front of the server is one address, too."""

HEAD_TOO_LARGE = Refusal("header_too_large", f"expected a request line and headers of at most {HEAD_BYTES_MAX} bytes")
TOO_MANY_CONNECTIONS = Refusal(
    "rate_limited",
    f"expected at most {CONNECTIONS_MAX} open connections from one address: close some",
    {"retry_after_s": 1},
)


def bounded_http(request_s: float) -> type[HttpToolsProtocol]:
    """The protocol of a worker whose requests must arrive within so many seconds."""
    return type("BoundedHttp", (_BoundedHttp,), {"request_s": request_s, "open_from": Counter()})


class _BoundedHttp(HttpToolsProtocol):
    """One connection.

    While a request is due or arrives, a timer runs; it stops when the last byte of the request is there. Answers take
    as long as they take, and a connection that rests between two requests has uvicorn's own timer.
    """

    request_s: float
    open_from: Counter[str]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._due: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._silent_bytes = 0
        self._refusal: Refusal | None = None
        self._address = ""
        self._is_handed_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a connection, unless its address has too many."""
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        self.open_from[self._address] += 1
        if self._address and self.open_from[self._address] > CONNECTIONS_MAX:
            self._refuse(TOO_MANY_CONNECTIONS)
        else:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets a connection."""
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        """Hands a connection to the protocol of web sockets."""
        self._leave()
        self._is_handed_over = True
        super().handle_websocket_upgrade()

    def data_received(self, data: bytes) -> None:
        """Takes some bytes in. What the parser makes nothing of for too long can only be an endless header."""
        if self.transport.is_closing():
            return
        self._silent_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self.parser is None or self._is_handed_over:
            return
        if self._silent_bytes > HEAD_BYTES_MAX:
            self._refuse(HEAD_TOO_LARGE)
        elif self._due is None and self.timeout_keep_alive_task is None and not self._is_answering:
            self._wait_for_request()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_bytes, self._silent_bytes = len(b"\r\n"), 0
        super().on_message_begin()
        if self._due is None:
            self._wait_for_request()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header or trailer."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers are there."""
        self._count(len(self.parser.get_method()) + len(b"  HTTP/1.1\r\n"))
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has arrived. One that was answered before that leaves a connection that rests."""
        self._silent_bytes = 0
        self._stop_waiting()
        super().on_message_complete()
        if self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, or too much of one."""
        self._refuse(self._refusal or Refusal("bad_request", "expected a request of HTTP/1.1"))

    @property
    def _is_answering(self) -> bool:
        """Whether a request that has arrived is being answered."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _count(self, more: int) -> None:
        self._silent_bytes = 0
        self._head_bytes += more
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refusal = HEAD_TOO_LARGE
            # The parser stops at an error of a callback, and `send_400_response` is asked for.
            raise ValueError(HEAD_TOO_LARGE.message)

    def _wait_for_request(self) -> None:
        self._due = self.loop.call_later(self.request_s, self._is_late)

    def _stop_waiting(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _is_late(self) -> None:
        """Closes the connection, unless the server itself does not read it, or still answers what came before."""
        self._due = None
        if self.flow.read_paused or self._is_answering:
            self._wait_for_request()
        else:
            self._refuse(Refusal("timeout", f"expected a whole request within {self.request_s:g} s"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answers, if no other answer is under way, and closes."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_answer(refusal))
        self.transport.close()

    def _leave(self) -> None:
        self._stop_waiting()
        if self._address:
            self.open_from[self._address] -= 1
            if not self.open_from[self._address]:
                del self.open_from[self._address]
            self._address = ""


def _answer(refusal: Refusal) -> bytes:
    content = msgspec.json.encode(refusal.body)
    head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n"
    if refusal.detail and "retry_after_s" in refusal.detail:
        head += f"retry-after: {refusal.detail['retry_after_s']}\r\n"
    head += "\r\n"
    return STATUS_LINE[refusal.status] + head.encode() + content
