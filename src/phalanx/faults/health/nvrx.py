"""The node check of NVIDIA's resiliency extension (NVRx): a service on a Unix socket of the node, asked by gRPC.

Its two messages are so small that they are read here, by the wire format of protocol buffers: the call needs grpcio,
and no generated code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

METHOD = "/nvhcd.HealthCheckService/RunHealthCheck"
ARGUMENTS = ("--no-slurm", "--group", "prolog", "epilog", "logs", "gpu")
"""What NVRx itself asks for."""

_VARINT, _LENGTH = 0, 2
_ARGS, _SUCCESS, _EXIT_CODE, _OUTPUT, _ERROR = 1, 1, 2, 3, 4


class Answer(NamedTuple):
    """What the service came to."""

    success: bool
    exit_code: int
    output: str
    error: str

    @property
    def is_well(self) -> bool:
        """Whether the script ran well and found nothing wrong. NVRx judges in the same way."""
        return self.success and self.failures in (None, 0)

    @property
    def failures(self) -> int | None:
        """The checks that failed, where the output says so."""
        try:
            count = json.loads(self.output)["fail_count"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        return count if isinstance(count, int) else None


class NoAnswerError(Exception):
    """A service that is not there, or says something else."""


def ask(socket: str, timeout_s: float) -> Answer:
    """Has the service run its checks. Raises ImportError where grpcio is not installed."""
    grpc = import_module("grpc")
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(METHOD, request_serializer=request_of, response_deserializer=answer_of)
        try:
            answer: Answer = call(ARGUMENTS, timeout=timeout_s)
        except grpc.RpcError as error:
            raise NoAnswerError(f"{socket}: {error.details() or error.code().name}") from None
    return answer


def request_of(arguments: tuple[str, ...]) -> bytes:
    """The message that asks for a check: its one field, repeated."""
    each = [argument.encode() for argument in arguments]
    return b"".join(bytes([_ARGS << 3 | _LENGTH]) + _varint(len(text)) + text for text in each)


def answer_of(message: bytes) -> Answer:
    """The message that answers. Fields of later versions are passed over."""
    success, exit_code, output, error = False, 0, "", ""
    for field, value in _fields(message):
        match field, value:
            case int(), int() if field == _SUCCESS:
                success = bool(value)
            case int(), int() if field == _EXIT_CODE:
                # A negative int32 is written as 64 bits.
                exit_code = value - (1 << 64) if value >> 63 else value
            case int(), bytes() if field == _OUTPUT:
                output = value.decode(errors="replace")
            case int(), bytes() if field == _ERROR:
                error = value.decode(errors="replace")
            case _:
                pass
    return Answer(success, exit_code, output, error)


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message by their numbers, of the two wire types that this one has."""
    at = 0
    while at < len(message):
        key, at = _read(message, at)
        value, at = _read(message, at)
        if key & 7 == _VARINT:
            yield key >> 3, value
        elif key & 7 == _LENGTH and at + value <= len(message):
            yield key >> 3, message[at : at + value]
            at += value
        else:
            raise ValueError(f"expected a field of NVRx's answer at byte {at}, got wire type {key & 7}")


def _read(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError(f"NVRx's answer breaks off at byte {at}")
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
