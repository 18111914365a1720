"""The HTTP client of the command line against a server that answers byte by byte what a test says."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from threading import Thread
from urllib.parse import quote, urlsplit

import pytest

from phalanx.cli import client
from phalanx.cli.http import Address, Connection, HttpError, quoted, url_of
from phalanx.document.field import NAME_MAX

OK = b"HTTP/1.1 200 OK\r\n"
Serve = Callable[..., Connection]


class Script:
    """Accepts connections and gives each the answers that are meant for it, one a request; then hangs up."""

    def __init__(self, *connections: list[bytes]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._socket.getsockname()[1])
        self.asked: list[bytes] = []
        self._thread = Thread(target=self._serve, args=(connections,), daemon=True)
        self._thread.start()

    def _serve(self, connections: tuple[list[bytes], ...]) -> None:
        for answers in connections:
            line, _ = self._socket.accept()
            with line:
                for answer in answers:
                    self.asked.append(line.recv(65_536))
                    line.sendall(answer)

    def close(self) -> None:
        self._thread.join(10)
        self._socket.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    made: list[Script] = []

    def script(*connections: list[bytes]) -> Connection:
        made.append(Script(*connections))
        connection = Connection(made[-1].address)
        vars(connection)["script"] = made[-1]
        return connection

    yield script
    for each in made:
        each.close()


def test_a_name_may_be_as_long_here_as_in_a_job_file() -> None:
    assert client.NAME_MAX == NAME_MAX
    with pytest.raises(client.NotFound, match="names have at most 253 characters"):
        client.job_path("x" * 254)


def ask(connection: Connection, body: bytes | None = None) -> tuple[int, bytes]:
    response = connection.ask("POST" if body else "GET", "/x", body, {"A": "b"}, 10)
    return response.status, response.read()


def test_bodies_of_a_length_in_chunks_and_until_the_end_are_read_over_as_few_connections_as_there_can_be(
    serve: Serve,
) -> None:
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: 1\r\n\r\n"
    first = [OK + b"Content-Length: 2\r\n\r\nhi", OK + chunked, b"HTTP/1.1 204 No Content\r\n\r\n", OK + b"\r\nall"]
    second = [b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length:1\r\nConnection: close\r\n\r\n."]
    connection = serve(first, second, [OK + b"Content-Length: 0\r\n\r\n"])
    assert [ask(connection) for _ in range(4)] == [(200, b"hi"), (200, b"abcde"), (204, b""), (200, b"all")]
    assert [ask(connection, b"{}") for _ in range(2)] == [(200, b"."), (200, b"")]
    connection.close()
    asked = vars(connection)["script"].asked[4]
    assert asked.startswith(b"POST /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert asked.endswith(b"Content-Length: 2\r\nA: b\r\n\r\n{}")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "the server hung up"),
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (OK + b"Content-Length: 9\r\n\r\nhi", "broke off"),
        (OK + b"Content-Length: two\r\n\r\nhi", "Content-Length of 'two'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk of length 'xyz'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "another length than it said"),
        (OK + b"".join(b"H%d: 1\r\n" % i for i in range(300)) + b"\r\n", "more than 200 headers"),
        (OK + b"A: " + b"b" * 70_000, "a line that is too long"),
    ],
)
def test_an_answer_that_is_none_or_breaks_off_is_told_as_such(serve: Serve, answer: bytes, told: str) -> None:
    connection = serve([answer])
    with pytest.raises(HttpError, match=told):
        ask(connection)
    connection.close()


def test_a_line_break_in_a_header_is_not_sent(serve: Serve) -> None:
    connection = serve([])
    with pytest.raises(HttpError, match="line break"):
        connection.ask("GET", "/x", None, {"A": "b\r\nC: d"}, 10)
    connection.close()


def test_a_piece_is_read_before_the_next_has_come(serve: Serve) -> None:
    connection = serve([OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", b""])
    response = connection.ask("GET", "/x", None, {}, 0.2)
    assert response.read1(100) == b"abc"
    with pytest.raises(TimeoutError):
        response.read1(100)
    connection.close()


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("http://127.0.0.1:8470", "127.0.0.1", 8470, ""),
        ("https://Phalanx.Lab", "phalanx.lab", 443, ""),
        ("http://[::1]:8470/behind/Proxy", "::1", 8470, "/behind/Proxy"),
        ("http://[fe80::1]", "fe80::1", 80, ""),
    ],
)
def test_an_address_is_read_as_urllib_reads_it(text: str, host: str, port: int, path: str) -> None:
    url, theirs = url_of(text), urlsplit(text)
    assert url is not None
    assert (url.address, url.path) == (Address(host, port), path)
    assert (url.scheme, host, path) == (theirs.scheme, theirs.hostname, theirs.path)
    assert theirs.port in (None, port)


@pytest.mark.parametrize(
    "text",
    ["", "here:8470", "ftp://here", "http://", "http://:80", "http://::1:80", "http://here:x", "http://here:99999"],
)
def test_what_is_no_address_is_none(text: str) -> None:
    assert url_of(text) is None


@pytest.mark.parametrize("text", ["job-1_2.3~", "a/b c?d&e=f%", "größe", "作業"])
def test_a_name_is_quoted_as_urllib_quotes_it(text: str) -> None:
    assert quoted(text) == quote(text, safe="")
