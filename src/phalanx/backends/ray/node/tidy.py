"""Removes what earlier nodes of Ray left on this machine: a node that is started again has another number."""

from __future__ import annotations

import os
import shutil

from phalanx.backends.local.folder import AttemptFolder

OLD_S = 86_400.0
"""What has not changed for so long may go: a server that was away may still want the logs of the last day."""


def remove_old(scratch: str, own: str, now_s: float) -> None:
    """Removes the folders of other nodes than `own`, but for those where something runs or has changed of late."""
    for name in os.listdir(scratch):
        path = f"{scratch}/{name}"
        if name != own and os.path.isdir(path) and not os.path.islink(path) and _is_over(path, now_s):
            shutil.rmtree(path, ignore_errors=True)


def remove_empty(path: str, root: str) -> None:
    """Removes the folders from `path` up to `root` that have nothing in them."""
    while path.startswith(f"{root}/"):
        try:
            os.rmdir(path)
        except OSError:
            return
        path = os.path.dirname(path)


def _is_over(path: str, now_s: float) -> bool:
    for folder, _, files in os.walk(path):
        if now_s - os.stat(folder).st_mtime < OLD_S:
            return False
        if "order.json" in files and not _is_deserted(folder):
            return False
    return True


def _is_deserted(folder: str) -> bool:
    lock = AttemptFolder(folder).lock()
    if lock is None:
        return False
    os.close(lock)
    return True
