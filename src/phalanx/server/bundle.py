"""The debug bundle: everything that is needed to see elsewhere what happened here, in one file, and to replay it."""

from __future__ import annotations

import io
import platform
import zipfile
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection

from phalanx.engine.state.journal import Digest
from phalanx.server.hidden_env import line_without_values
from phalanx.server.options import Options
from phalanx.server.store.accounts import audit_page
from phalanx.server.store.journal import lines_after
from phalanx.server.store.snapshots import content_of, newest_first

FORECASTS = "forecasts.json"
"""What the starts of forecast jobs have taught: a file of the data folder, and of a bundle."""

LOG_BYTES = 1 << 20
RECORDS_MAX = 200_000
AUDIT_ROWS = 1_000

README = """A debug bundle of phalanx. `why ID --state`, `what-if --state` and `replay` of phalanx take it as it is.

journal.jsonl   the journal: `phalanx replay --verify journal.jsonl` folds and decides it again
start.bin       only of a long journal: the State before its first record here; replay with `--from start.bin`
snapshot.bin    the State at its end, as `phalanx why ID --state snapshot.bin` reads it
forecasts.json  how far forecasts of starts were off, by policy: `why --state` corrects intervals by it
metrics.txt     metrics at that moment
audit.json      the last entries of the audit log
log/            the ends of the logs of every process
versions.json   the machine, Python and packages

Jobs' commands are in the journal. Values of their variables (`env`) are not: each is "…" in the journal and the States,
which decide the same without them. The digest that `replay` tells is over the records as they are in here, so it is not
the one that the server has. Secrets, tokens and passwords are not in here, not even their digests.
"""


class Start(NamedTuple):
    """The State after record `seq`, at which a bundle begins, as the store has it."""

    seq: int
    content: bytes


class Parts(NamedTuple):
    """What a bundle tells of the State: that at its end, the journal, and where that is long the State it begins at."""

    snapshot: bytes
    journal: bytes
    start: bytes = b""


def start_of(connection: Connection, until: int, records_max: int = RECORDS_MAX) -> Start | None:
    """The State at which the journal of a bundle begins; None if the journal is short enough to be given whole."""
    kept = [each for each in newest_first(connection) if each.seq <= until]
    if until <= records_max or not kept:
        return None
    return Start(kept[-1].seq, content_of(connection, kept[-1]))


def journal_between(connection: Connection, after: int, until: int) -> tuple[bytes, bytes]:
    """The lines after one record up to another, without values of variables, and the last link of their digest."""
    digest = Digest()
    lines = []
    for line in islice(lines_after(connection, after), until - after):
        hidden = line_without_values(line)
        digest.add(hidden)
        lines.append(hidden + b"\n")
    return b"".join(lines), digest.link


def bundle(connection: Connection, options: Options, parts: Parts, metrics: bytes) -> bytes:
    """The bundle as a zip file. Of a long journal it has the end, and the State at which that begins."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", README)
        archive.writestr("snapshot.bin", parts.snapshot)
        archive.writestr("metrics.txt", metrics)
        if parts.start:
            archive.writestr("start.bin", parts.start)
        archive.writestr("journal.jsonl", parts.journal)
        if options.file(FORECASTS).is_file():
            archive.writestr(FORECASTS, options.file(FORECASTS).read_bytes())
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
