"""The files that the page is made of, as the package has them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served, by the end of its name; nothing else of the folder is."""

PAGE, REFERENCE, ICON = "index.html", "reference.html", "icon.svg"


@dataclass(frozen=True, slots=True)
class WebFile:
    """One file, ready to be sent."""

    content: bytes
    compressed: bytes
    media: str
    etag: str


@cache
def static_files() -> dict[str, WebFile]:
    """All files by their paths."""
    return {path: _file(path, content) for path, content in _walk(files("phalanx.server.web"), "")}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{path}/")
        elif _end(path) in MEDIA:
            yield path, entry.read_bytes()


def _file(path: str, content: bytes) -> WebFile:
    etag = f'"{sha256(content).hexdigest()[:20]}"'
    return WebFile(content, gzip.compress(content, mtime=0), MEDIA[_end(path)], etag)


def _end(path: str) -> str:
    return path[path.rfind(".") :]
