"""What the page weighs on the way to the browser."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

from phalanx.bench.row import Row, row

WEIGHT_TARGET_KB = 250.0
SENT = (".html", ".css", ".js", ".svg")
WEB = "phalanx.server.web"


def weight() -> list[Row]:
    """All files of the page, with every view; the reference of the API is a page of its own."""
    sent = [
        len(gzip.compress(file.read_bytes())) for file in _files(files(WEB)) if not file.name.startswith("reference.")
    ]
    return [
        row("weight of the page, compressed", sum(sent) / 1000, "kB", WEIGHT_TARGET_KB),
        row("files of the page", len(sent), "files"),
    ]


def _files(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        elif entry.name.endswith(SENT):
            yield entry
