"""Job files as requests carry them: read by the same reader as files, and described for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import msgspec

from phalanx.document import DocumentError
from phalanx.server.refusal import Refusal
from phalanx.workload.formats.native import JOB_KEYS, read_job
from phalanx.workload.job import Job

SOURCE = "job"
RELATIVE = ("begin", "deadline")
"""Keys whose meaning depends on when a job is read."""

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
    },
}
_properties: dict[str, Any] = {
    "version": {"type": "integer", "enum": [1]},
    "name": {"type": "string"},
    "kind": {"type": "string", "enum": ["training", "service", "interactive"]},
    "queue": {"type": "string"},
    "user": {"type": "string", "description": "Operators may submit for somebody else."},
    "priority": {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000},
    "command": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    "image": {"type": "string"},
    "env": _text_map,
    "workdir": {"type": "string"},
    "labels": _text_map,
    "node_selector": _text_map,
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


class JobReader:
    """Reads job files. Many jobs differ by their names only: what is the same is read once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Job] = {}

    def one(self, text: str, gpu_types: Collection[str], now_ms: int) -> Job:
        """The job of one file."""
        return read_job(text, SOURCE, now_ms=now_ms, gpu_types=gpu_types)

    def many(self, files: list[Any], gpu_types: Collection[str], now_ms: int) -> list[Job]:
        """The jobs of many files; the first that cannot be read is told by its place."""
        jobs = []
        for index, file in enumerate(files):
            try:
                jobs.append(self._of(file, gpu_types, now_ms))
            except DocumentError as error:
                detail = {"index": index, "line": error.line, "key": error.key}
                raise Refusal("invalid", f"jobs[{index}]: {error}", detail) from None
        return jobs

    def _of(self, file: Any, gpu_types: Collection[str], now_ms: int) -> Job:
        if not isinstance(file, dict) or any(key in file for key in RELATIVE):
            return self.one(msgspec.json.encode(file).decode(), gpu_types, now_ms)
        name = file.get("name", "")
        if not isinstance(name, str) or not name.isprintable() or name != name.strip() or len(name) > 100:
            return self.one(msgspec.json.encode(file).decode(), gpu_types, now_ms)
        rest = msgspec.json.encode({key: value for key, value in file.items() if key != "name"}, order="sorted")
        job = self._known.get(rest)
        if job is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            job = self._known[rest] = self.one(rest.decode(), gpu_types, now_ms)
        return replace(job, name=name) if name else job


def files_of(content: bytes) -> list[Any]:
    """The job files of a batch."""
    try:
        batch = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal("bad_request", f"expected JSON: {error}") from None
    files = batch.get("jobs") if isinstance(batch, dict) and list(batch) == ["jobs"] else None
    if not isinstance(files, list) or not 1 <= len(files) <= BATCH_MAX:
        raise Refusal("invalid", f'expected {{"jobs": [...]}} with 1 to {BATCH_MAX} job files')
    return files


def text_of(content: bytes) -> str:
    """A body as text."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = content[error.start]
        raise Refusal("bad_request", f"expected UTF-8, found byte {found:#04x} at {error.start}") from None
