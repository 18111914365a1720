"""Variables without their values: what users are shown of the environment of a job that they may not change.

The names stay; every value is the one text `HIDDEN`, so that nothing can be told from its length.
"""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.workload.job import HIDDEN

_VARIABLES = b'"env"'
_encoder = msgspec.json.Encoder()


def without_values(job: dict[str, Any]) -> dict[str, Any]:
    """A job, as a record has it, without the values of its variables."""
    execution = job.get("execution") or {}
    variables = execution.get("env")
    if not variables:
        return job
    return {**job, "execution": {**execution, "env": [[name, HIDDEN] for name, _ in variables]}}


def line_without_values(line: bytes) -> bytes:
    """A line of the journal without the values of variables; one that has none is left as it was written."""
    if _VARIABLES not in line:
        return line
    record = msgspec.json.decode(line)
    job = record["body"].get("job")
    if not isinstance(job, dict):
        return line
    hidden = without_values(job)
    return line if hidden is job else _encoder.encode({**record, "body": {**record["body"], "job": hidden}})
