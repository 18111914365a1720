"""Why a worker ended: what is said of one worker, whether trying again could help, and which of many came first."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROGRAM = {
    "import": ("ImportError", "ModuleNotFoundError"),
    "syntax": ("SyntaxError", "IndentationError", "TabError"),
    "missing file": ("FileNotFoundError", "NotADirectoryError", "IsADirectoryError"),
    "assertion": ("AssertionError",),
    "program": (
        *("AttributeError", "IndexError", "KeyError", "LookupError", "NameError", "UnboundLocalError"),
        *("TypeError", "ValueError", "ZeroDivisionError", "NotImplementedError", "RecursionError", "PhalanxError"),
    ),
}
"""Exceptions of the program itself: it would raise them again."""

COLLECTIVE = (
    *("connection closed by peer", "connection reset by peer", "timed out waiting", "nccl", "gloo", "broken pipe"),
    *("connection refused", "socket timeout", "wait timeout", "distnetworkerror", "diststoreerror", "watchdog"),
    *("tcpstore", "distbackenderror", "rankendederror", "rankmissingerror"),
)
"""Words of errors that a rank has because another one is gone."""

TEXT_MOST, TRACE_MOST = 1000, 50_000
"""Characters that are told of an error. A report is one line, and too long a line would break the connection."""

USAGE_EXIT = 2
CANNOT_RUN = (126, 127)


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known of a worker's end. Code and signal are those of the process; `error` is what Python raised."""

    rank: int
    host: str
    at_s: float
    code: int | None = None
    signal: int | None = None
    error: str = ""
    message: str = ""
    trace: str = ""
    oom: bool = False
    hung: str = ""
    """Where it stood, if it was ended because it made no progress."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a rank ended, in words. A cascade follows from the end of another rank."""

    kind: str
    rank: int
    host: str
    at_s: float
    text: str
    trace: str = ""
    is_program: bool = False
    is_cascade: bool = False
    agent: str = ""
    """The agent that was lost, where that is the cause."""

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Cause:
        return cls(**said)

    def __str__(self) -> str:
        where = f"rank {self.rank} on {self.host}" if self.rank >= 0 else self.host
        return f"{where}: {self.text}"


def cause_of(ending: Ending) -> Cause:
    """What an ending means."""
    kind, text, is_program, is_cascade = _judged(ending)
    text = text if len(text) <= TEXT_MOST else f"{text[:TEXT_MOST]}…"
    trace = ending.trace[-TRACE_MOST:]
    return Cause(kind, ending.rank, ending.host, ending.at_s, text, trace, is_program, is_cascade)


def first_of(causes: Sequence[Cause]) -> Cause:
    """The cause among those of one failure: the earliest of what does not follow from another rank's end.

    A hang is found long after it began, when other ranks may have timed out because of it.
    """
    return min(causes, key=lambda cause: (cause.is_cascade, cause.kind != "hang", cause.at_s, cause.rank))


def _judged(ending: Ending) -> tuple[str, str, bool, bool]:
    if ending.hung:
        return "hang", f"no progress: {ending.hung}", False, False
    if ending.error:
        return _raised(ending.error, ending.message)
    if ending.signal is not None:
        return _signalled(ending.signal, ending.oom)
    if ending.code == USAGE_EXIT:
        return "argument", "exit code 2: the program refused its arguments", True, False
    if ending.code in CANNOT_RUN:
        return "missing file", f"exit code {ending.code}: the command cannot be run", True, False
    return "exit", f"exit code {ending.code}", False, False


def _raised(error: str, message: str) -> tuple[str, str, bool, bool]:
    first = message.strip().splitlines()[0] if message.strip() else ""
    text = f"{error}: {first}" if first else error
    words = f"{error} {message}".lower()
    if "out of memory" in words or error in ("OutOfMemoryError", "MemoryError"):
        return "out of memory", text, False, False
    if "cuda error" in words or "cudnn" in words or error == "AcceleratorError":
        return "cuda", text, False, False
    if any(word in words for word in COLLECTIVE) or error in ("ConnectionResetError", "BrokenPipeError"):
        return "collective", text, False, True
    for kind, errors in PROGRAM.items():
        if error in errors:
            return kind, text, True, False
    return "exception", text, False, False


def _signalled(number: int, oom: bool) -> tuple[str, str, bool, bool]:
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    if oom:
        return "out of memory", f"killed by the kernel, out of memory ({name})", False, False
    # SIGTERM comes from what runs the rank; SIGABRT is how a time-out of NCCL ends one.
    return "signal", f"ended by {name}", False, number in (signal.SIGTERM, signal.SIGABRT)
