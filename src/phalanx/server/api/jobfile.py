"""Job files as requests carry them: read by the same reader as files, and described for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from phalanx.document import DocumentError
from phalanx.server.refusal import Refusal
from phalanx.workload.formats.limits import JOB_LIMITS
from phalanx.workload.formats.native import JOB_KEYS, read_job
from phalanx.workload.job import Job

SOURCE = "job"
RELATIVE = (b"begin", b"deadline")
"""Keys whose meaning depends on when a job is read, in whatever way a file is written."""

NAME_MAX = 100
"""Longer names are left to the reader of job files to judge."""

KEPT = 1_000
BATCH_MAX = 10_000

JOB_FILE_EXAMPLE = {
    "version": 1,
    "name": "llama-70b",
    "queue": "research/llm",
    "command": ["python", "train.py"],
    "gang": [{"role": "worker", "replicas": 4, "gpus": 8, "cpus": 32, "memory_gb": 512}],
    "duration": "4h",
}

_amount = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "number", "minimum": 0}, {"type": "string"}]}
_duration = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}], "description": "As 90s, 4h or 1d12h."}
_text_map = {"type": "object", "additionalProperties": {"type": "string"}}
_role = {
    "type": "object",
    "properties": {
        "role": {"type": "string"},
        "replicas": {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {
                    "type": "object",
                    "properties": {"min": {"type": "integer", "minimum": 1}, "max": {"type": "integer", "minimum": 1}},
                },
            ]
        },
        "gpus": {"type": "integer", "minimum": 0},
        "gpu_type": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "cpus": _amount,
        "memory_gb": _amount,
        "node_selector": _text_map,
    },
}
_properties: dict[str, Any] = {
    "version": {"type": "integer", "enum": [1]},
    "name": {"type": "string"},
    "kind": {"type": "string", "enum": ["training", "service", "interactive"]},
    "queue": {"type": "string"},
    "user": {"type": "string", "description": "Operators may submit for other users."},
    "priority": {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000},
    "command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    "image": {"type": "string"},
    "env": _text_map,
    "inherit_env": {
        "type": "boolean",
        "description": "Only `phalanx submit` and `run` mind it: REST inherits nothing.",
    },
    "workdir": {"type": "string"},
    "labels": _text_map,
    "node_selector": _text_map,
    "prefer": {
        "type": "object",
        "additionalProperties": {"type": "integer", "minimum": -100, "maximum": 100},
        "description": "Weights of nodes with a label, by `name=value`.",
    },
    "gang": {"type": "array", "items": _role, "minItems": 1},
    "gpus": {"type": "integer", "minimum": 0},
    "cpus": _amount,
    "memory_gb": _amount,
    "duration": _duration,
    "max_run": _duration,
    "max_wait": _duration,
    "grace": _duration,
    "array": {"type": "string"},
    "preemptible": {"type": "boolean"},
}
JOB_FILE_SCHEMA: dict[str, Any] = {
    "title": "JobFile",
    "type": "object",
    "description": "A job file, as docs/reference/job-file.md describes it. An unknown key is an error.",
    "properties": {key: _properties.get(key, {}) for key in JOB_KEYS},
    "additionalProperties": False,
    "example": JOB_FILE_EXAMPLE,
}


class Batch(NamedTuple):
    """Many jobs: one of each kind, and of every job its kind and its name."""

    kinds: list[Job]
    named: list[tuple[int, str]]


class JobReader:
    """Reads job files. Many jobs differ by their names only: what is the same is read once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Job] = {}

    def one(self, text: str, gpu_types: Collection[str], now_ms: int) -> Job:
        """The job of one file."""
        if len(text) > JOB_LIMITS.text:
            raise Refusal("too_large", f"expected a job file of at most {JOB_LIMITS.text} characters, got {len(text)}")
        return read_job(text, SOURCE, now_ms=now_ms, gpu_types=gpu_types)

    def many(self, files: Sequence[Any], gpu_types: Collection[str], now_ms: int) -> list[Job]:
        """The jobs of many files, as objects or as text; the first that cannot be read is told by its place."""
        jobs = []
        for index, file in enumerate(files):
            with _told_by_place(index):
                text = file if isinstance(file, str) else msgspec.json.encode(file).decode()
                jobs.append(self.one(text, gpu_types, now_ms))
        return jobs

    def batch(self, content: bytes, gpu_types: Collection[str], now_ms: int) -> Batch:
        """The jobs of a batch, by kinds; the first that cannot be read is told by its place."""
        kinds: list[Job] = []
        named: list[tuple[int, str]] = []
        places: dict[bytes, int] = {}
        for index, file in enumerate(files_of(content)):
            with _told_by_place(index):
                rest, name = _rest_of(file)
                if rest not in places:
                    places[rest] = len(kinds)
                    kinds.append(self._kind(rest, gpu_types, now_ms))
                place = places[rest]
                named.append((place, kinds[place].name if name is None else name))
        return Batch(kinds, named)

    def _kind(self, text: bytes, gpu_types: Collection[str], now_ms: int) -> Job:
        job = self._known.get(text)
        if job is None:
            job = self.one(text.decode(), gpu_types, now_ms)
            if not any(word in text for word in RELATIVE):
                if len(self._known) >= KEPT:
                    self._known.clear()
                self._known[text] = job
        return job


@contextmanager
def _told_by_place(index: int) -> Iterator[None]:
    """Says of what is wrong with one of many files which it is."""
    try:
        yield
    except DocumentError as error:
        detail = {"index": index, "line": error.line, "key": error.key}
        raise Refusal("invalid", f"jobs[{index}]: {error}", detail) from None
    except Refusal as refusal:
        raise Refusal(refusal.code, f"jobs[{index}]: {refusal}", {"index": index}) from None


def _rest_of(file: Any) -> tuple[bytes, str | None]:
    """A job file without its name, and the name; None for a name that is to be read with the rest."""
    if isinstance(file, str):
        return file.encode(), None
    name = file.get("name") if isinstance(file, dict) else None
    if not isinstance(name, str) or not name or not name.isprintable() or name != name.strip() or len(name) > NAME_MAX:
        return msgspec.json.encode(file), None
    rest = file.copy()
    del rest["name"]
    return msgspec.json.encode(rest), name


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[msgspec.Raw]


def files_of(content: bytes) -> Iterator[Any]:
    """The job files of a batch, read one after another: other threads run between two."""
    try:
        files = msgspec.json.decode(content, type=_Batch).jobs
    except msgspec.ValidationError:
        files = []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from None
    if not 1 <= len(files) <= BATCH_MAX:
        raise Refusal("invalid", f'expected {{"jobs": [...]}} with 1 to {BATCH_MAX} job files')
    for file in files:
        try:
            yield msgspec.json.decode(file)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _no_json(error) from None


def _no_json(error: Exception) -> Refusal:
    return Refusal("bad_request", f"expected JSON: {error}")


def text_of(content: bytes) -> str:
    """A body as text."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = content[error.start]
        raise Refusal("bad_request", f"expected UTF-8, found byte {found:#04x} at {error.start}") from None
