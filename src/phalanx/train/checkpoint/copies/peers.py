"""Snapshots on their way between machines: pushed to ranks that hold copies, fetched by ranks that lost theirs.

One connection carries one snapshot, chunk by chunk, each with its checksum. The receiver marks its slot whole when all
has arrived; if the sender dies on the way, the slot stays marked as half written and the older copy beside it is whole.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from phalanx.train.checkpoint.copies.pace import Pace
from phalanx.train.checkpoint.host.holdings import Holdings
from phalanx.train.checkpoint.host.slot import COMPLETE, Header, Slot
from phalanx.train.checkpoint.snapshots.arrangement import DATA_OFFSET

CHUNK_BYTES = 4 << 20
TIMEOUT_S = 30.0
LENGTH = struct.Struct("<I")
DONE = b"\x06"

Address = tuple[str, int]


class TransferError(Exception):
    """A snapshot did not arrive."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """How a snapshot is to be sent: in the gaps that the pace leaves, but done by a moment; `halfway` is told then."""

    pace: Pace | None = None
    until_s: float = 0.0
    halfway: Callable[[], None] = lambda: None


class PeerServer(threading.Thread):
    """Takes copies from other ranks and gives them back."""

    def __init__(self, host: str, token: str, holdings: Holdings) -> None:
        super().__init__(daemon=True, name="peers")
        self._token = token
        self.holdings = holdings
        self._listener = socket.create_server((host, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Takes no more."""
        # Closing alone would not wake the thread that waits for a connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(TIMEOUT_S)
            try:
                request = _receive_json(connection)
                if not hmac.compare_digest(str(request.get("token")), self._token):
                    return
                if request["do"] == "put":
                    _receive(connection, self.holdings.replica_target(request["rank"]), Header(**request["header"]))
                    connection.sendall(DONE)
                elif request["do"] == "get":
                    self._give(connection, request["rank"], request["step"])
            except (OSError, TransferError, KeyError, ValueError):
                # The other side sees the connection close, and says which rank was lost.
                return

    def _give(self, connection: socket.socket, rank: int, step: int) -> None:
        slot = self.holdings.find(rank, step)
        _send_json(connection, {"header": None if slot is None else asdict(slot.header)})
        if slot is not None:
            _send(connection, slot, Parcel())


def push(address: Address, token: str, slot: Slot, parcel: Parcel) -> int:
    """Puts a snapshot on another machine; the number of bytes."""
    header = slot.header
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        _send_json(connection, {"token": token, "do": "put", "rank": header.rank, "header": asdict(header)})
        _send(connection, slot, parcel)
        if connection.recv(1) != DONE:
            raise TransferError("it closed the connection before the copy was whole")
    return header.total_bytes


def fetch(address: Address, token: str, rank: int, step: int, prepare: Callable[[Header], Slot]) -> int:
    """Brings a rank's snapshot here, into the slot that `prepare` finds for it; the number of bytes."""
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        _send_json(connection, {"token": token, "do": "get", "rank": rank, "step": step})
        reply = _receive_json(connection)
        if reply["header"] is None:
            raise TransferError(f"it has no whole copy of rank {rank} after step {step}")
        header = Header(**reply["header"])
        _receive(connection, prepare(header), header)
        return header.total_bytes


def _send(connection: socket.socket, slot: Slot, parcel: Parcel) -> None:
    end = slot.header.total_bytes
    middle = DATA_OFFSET + (end - DATA_OFFSET) // 2
    for start in range(DATA_OFFSET, end, CHUNK_BYTES):
        if parcel.pace is not None:
            parcel.pace.wait(parcel.until_s)
        chunk = slot.segment.view[start : min(start + CHUNK_BYTES, end)]
        if start <= middle < start + CHUNK_BYTES:
            connection.sendall(chunk[: len(chunk) // 2])
            parcel.halfway()
            connection.sendall(chunk[len(chunk) // 2 :])
        else:
            connection.sendall(chunk)
        connection.sendall(LENGTH.pack(zlib.crc32(chunk)))


def _receive(connection: socket.socket, slot: Slot, header: Header) -> None:
    if header.state != COMPLETE or header.total_bytes > slot.segment.size:
        raise TransferError(f"a snapshot of {header.total_bytes} bytes does not go into {slot.name}")
    slot.begin(header.step, header.rank, header.data_bytes)
    for start in range(DATA_OFFSET, header.total_bytes, CHUNK_BYTES):
        chunk = slot.segment.view[start : min(start + CHUNK_BYTES, header.total_bytes)]
        _fill(connection, chunk)
        if LENGTH.unpack(_exactly(connection, LENGTH.size))[0] != zlib.crc32(chunk):
            raise TransferError(f"bytes {start} and following of {slot.name} did not arrive as they were sent")
    slot.adopt(header)


def _fill(connection: socket.socket, chunk: memoryview) -> None:
    got = 0
    while got < len(chunk):
        count = connection.recv_into(chunk[got:])
        if not count:
            raise TransferError("the connection was closed on the way")
        got += count


def _exactly(connection: socket.socket, count: int) -> bytes:
    text = bytearray(count)
    _fill(connection, memoryview(text))
    return bytes(text)


def _send_json(connection: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    connection.sendall(LENGTH.pack(len(text)) + text)


def _receive_json(connection: socket.socket) -> dict[str, Any]:
    length = LENGTH.unpack(_exactly(connection, LENGTH.size))[0]
    if length > 1 << 16:
        raise TransferError(f"a message of {length} bytes is none of ours")
    message: dict[str, Any] = json.loads(_exactly(connection, length))
    return message


def gap_deadline(seconds: float) -> float:
    """The moment until which a parcel may wait for gaps."""
    return time.monotonic() + seconds
