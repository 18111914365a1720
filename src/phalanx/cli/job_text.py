"""Job files as text: read once here, so that errors name file and line, then handed to the server as they are."""

from __future__ import annotations

import json

from phalanx.cli.files import text_of
from phalanx.errors import PhalanxError
from phalanx.workload.formats.native import read_job


def read_checked(path: str) -> str:
    """The text of a job file that is one."""
    text = text_of(path)
    read_job(text, path, job_id="0")
    return text


def started_in(path: str, folder: str) -> str:
    """The text of a job file, with this folder to start in if it names none and has no image with its own."""
    text = text_of(path)
    job = read_job(text, path, job_id="0")
    if not folder or job.execution.workdir or job.execution.image:
        return text
    moved = f"{text.rstrip()}\nworkdir: {json.dumps(folder)}\n"
    try:
        read_job(moved, path, job_id="0")
    except PhalanxError:
        # Written as JSON, or in another way that nothing can be added to at the end.
        return text
    return moved
