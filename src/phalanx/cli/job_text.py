"""Job files as text: read once here, so that errors name file and line, then handed to the server as they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from phalanx.cli.files import text_of
from phalanx.errors import PhalanxError
from phalanx.workload.formats.native import read_job
from phalanx.workload.job import Job


def checked(text: str, name: str) -> Job:
    """The job of a text; what is wrong with it is said with its line."""
    return read_job(text, name, job_id="0")


def read_checked(path: str) -> str:
    """The text of a job file that is one."""
    text = text_of(path)
    checked(text, path)
    return text


def at_home(text: str) -> str:
    """The same job, run in the present folder: where it names none, and has no image with folders of its own."""
    job = checked(text, "the job")
    if job.execution.workdir or job.execution.image:
        return text
    moved = f"{text.rstrip()}\nworkdir: {json.dumps(os.getcwd())}\n"
    try:
        checked(moved, "the job")
    except PhalanxError:
        # Written as JSON, or in another way that nothing can be added to at the end.
        return text
    return moved


def job_file(keys: Mapping[str, object]) -> str:
    """A job file of these keys. JSON is YAML."""
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in keys.items())
