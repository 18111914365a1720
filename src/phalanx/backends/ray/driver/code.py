"""The code that agents need, as an archive that is sent to the nodes: phalanx need not be installed there."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[4]
PARTS = (
    "phalanx/__init__.py",
    "phalanx/errors.py",
    "phalanx/train/__init__.py",
    "phalanx/train/checkpoint/__init__.py",
    "phalanx/train/checkpoint/helper.py",
    "phalanx/backends/__init__.py",
    "phalanx/backends/ray/__init__.py",
    "phalanx/backends/ray/node/*.py",
    "phalanx/backends/local/**/*.py",
)
_BEGINNING = (1980, 1, 1, 0, 0, 0)


def archive() -> bytes:
    """The same bytes for the same code."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(_files()):
            made.writestr(zipfile.ZipInfo(str(path.relative_to(SOURCE)), _BEGINNING), path.read_bytes())
    return content.getvalue()


def digest(content: bytes) -> str:
    """A short name of some code."""
    return hashlib.sha256(content).hexdigest()[:12]


def _files() -> Iterator[Path]:
    for part in PARTS:
        yield from SOURCE.glob(part)
