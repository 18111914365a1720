"""The code that runs, in a word: so that no result of older code is taken for one of this."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from phalanx.policy.registry import is_file, split

ROOT = Path(__file__).parents[1]
"""The folder of phalanx."""


def code_of(policies: Iterable[str]) -> str:
    """The version, and a digest of every module of phalanx and of the files that policies are from."""
    files = [Path(split(written)[0].partition(":")[0]) for written in policies if is_file(written)]
    digest = hashlib.sha256()
    for file in (*sorted(ROOT.rglob("*.py")), *sorted(dict.fromkeys(files))):
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        content = file.read_bytes()
        digest.update(f"{name.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return f"{version('phalanx')}+{digest.hexdigest()[:16]}"
