"""The debug bundle: everything somebody else needs to see what happened here, in one file, and to replay it."""

from __future__ import annotations

import io
import platform
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import msgspec
from sqlalchemy import Connection

from phalanx.server.options import Options
from phalanx.server.store.accounts import audit_page
from phalanx.server.store.journal import lines_after, newest_seq
from phalanx.server.store.snapshots import content_of, newest_first

LOG_BYTES = 1 << 20
RECORDS_MAX = 200_000
AUDIT_ROWS = 1_000

README = """A debug bundle of phalanx. `why ID --state`, `what-if --state` and `replay` of phalanx take it as it is.

journal.jsonl   the journal: `phalanx replay --verify journal.jsonl` folds and decides it again
start.bin       only of a long journal: the State before its first record here; replay with `--from start.bin`
snapshot.bin    the State at its end, as `phalanx why ID --state snapshot.bin` reads it
metrics.txt     metrics at that moment
audit.json      the last entries of the audit log
log/            the ends of the logs of every process
versions.json   the machine, Python and packages

Jobs' commands and environments are in the journal. Tokens and passwords are not in here, not even their digests.
"""


def bundle(connection: Connection, options: Options, snapshot: bytes, metrics: bytes) -> bytes:
    """The bundle as a zip file. Of a long journal it has the end, and the State at which that begins."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", README)
        archive.writestr("snapshot.bin", snapshot)
        archive.writestr("metrics.txt", metrics)
        first = -1
        kept = newest_first(connection)
        if newest_seq(connection) > RECORDS_MAX and kept:
            first = kept[-1].seq
            archive.writestr("start.bin", content_of(connection, kept[-1]))
        archive.writestr("journal.jsonl", b"".join(line + b"\n" for line in lines_after(connection, first)))
        archive.writestr("audit.json", msgspec.json.encode(audit_page(connection, None, AUDIT_ROWS, "", "")))
        archive.writestr("versions.json", msgspec.json.encode(_versions()))
        for path in sorted(options.file("log").glob("*.log")):
            archive.writestr(f"log/{path.name}", _end_of(path))
    return content.getvalue()


def _versions() -> dict[str, object]:
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {"python": platform.python_version(), "machine": platform.platform(), "packages": packages}


def _end_of(path: Path) -> bytes:
    with path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(max(size - LOG_BYTES, 0))
        return file.read()
