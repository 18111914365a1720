"""Pods that are asked to save their work, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import pytest

from kube_objects import as_pod, pod
from phalanx.kube.objects.pod import Pod
from phalanx.kube.saver import NO_ADDRESS, save_all

Answer = Callable[[socket.socket, threading.Event], None]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """A server that answers every connection so; the event is set in the end."""
    is_over = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=talk, args=(connection,)))
                threads[-1].start()

        def talk(connection: socket.socket) -> None:
            with connection:
                try:
                    connection.recv(4096)
                    answer(connection, is_over)
                except OSError:
                    return

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield server.getsockname()[1]
        finally:
            is_over.set()
            server.shutdown(socket.SHUT_RDWR)
            serving.join()
            for thread in threads:
                thread.join()


def saving(name: str, port: int, within_s: int = 30, address: str = "127.0.0.1") -> Pod:
    written = pod(name)
    written["metadata"]["annotations"] = {
        "phalanx.dev/save": f":{port}/save",
        "phalanx.dev/save-within": str(within_s),
    }
    each = as_pod(written, node="n0", phase="Running")
    return msgspec.structs.replace(each, status=msgspec.structs.replace(each.status, pod_ip=address))


def no_content(connection: socket.socket, is_over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def no_http(connection: socket.socket, is_over: threading.Event) -> None:
    connection.sendall(b"220 mail.example.com ESMTP\r\n")


def bit_by_bit(connection: socket.socket, is_over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 204")
    while not is_over.wait(0.05):
        connection.sendall(b" ")


def test_hundreds_of_pods_are_asked() -> None:
    with answering(no_content) as port:
        assert save_all([saving(f"p{i}", port) for i in range(400)]) == ()


def test_a_pod_that_answers_bit_by_bit_has_no_more_time_than_it_says() -> None:
    """Each byte would begin its time anew, and it would never be evicted."""
    with answering(bit_by_bit) as port:
        ((_, why),) = save_all([saving("p", port, 1)])
    assert why == "it did not save its work within 1 s"


@pytest.mark.parametrize("answer", [no_http, lambda connection, is_over: None])
def test_what_is_no_answer_is_told(answer: Answer) -> None:
    with answering(answer) as port:
        ((_, why),) = save_all([saving("p", port)])
    assert why.startswith("it could not be asked to save its work: expected an answer in HTTP, got b'")


def test_a_pod_without_an_address_is_not_looked_for_on_this_machine() -> None:
    asked = []
    with answering(lambda connection, is_over: asked.append(1)) as port:
        assert [why for _, why in save_all([saving("p", port, address="")])] == [NO_ADDRESS]
    assert not asked
