"""What the nodes of an attempt put down: read with care, for on a cluster of many users their user owns it."""

from __future__ import annotations

import json
import os
import stat
from typing import Any, cast

from phalanx.backends.local.attempt_files import AttemptState, Order
from phalanx.backends.slurm.node_agent import node_folder

REPORT_BYTES_MAX = 16 << 20
TEXT_MAX = 500


class Reports:
    """The reports of one attempt's nodes. A file that has not changed is not read again."""

    def __init__(self, attempt_folder: str, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self._folder = attempt_folder
        self._seen: dict[str, tuple[int, int, int]] = {}
        self._states: dict[str, AttemptState | None] = dict.fromkeys(nodes)

    def look(self) -> dict[str, AttemptState | None]:
        """The state of each node; None of one that has not begun."""
        for node in self.nodes:
            path = node_folder(self._folder, node).state_path
            try:
                found = os.lstat(path)
            except OSError:
                continue
            mark = (found.st_ino, found.st_mtime_ns, found.st_size)
            if self._seen.get(node) != mark:
                state = _checked_state(read_report(path))
                if state is not None:
                    self._seen[node], self._states[node] = mark, state
        return self._states

    def devices(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Node and devices of each rank, as the nodes were given them."""
        found: dict[int, tuple[str, tuple[int, ...]]] = {}
        for node in self.nodes:
            order = cast("Order | None", read_report(node_folder(self._folder, node).order_path))
            for task in order["tasks"] if order is not None else ():
                found[task["rank"]] = (node, tuple(task["devices"]))
        return found


def read_report(path: str) -> Any:
    """What a file of a node says; None where it is not there, is no plain file of that folder's owner, or is torn."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        is_own = found.st_uid in (os.getuid(), os.stat(os.path.dirname(path)).st_uid)
        if not stat.S_ISREG(found.st_mode) or not is_own or found.st_size > REPORT_BYTES_MAX:
            return None
        try:
            return json.loads(file.read())
        except ValueError:
            return None


def last_line(path: str) -> str:
    """The last line of a text, for people; empty where there is none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        file.seek(max(os.fstat(handle).st_size - 4096, 0))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:TEXT_MAX] if lines else ""


def _checked_state(report: Any) -> AttemptState | None:
    """A report in the form in which shepherds write it; None for anything else."""
    try:
        for answer in report["answers"]:
            answer["reason"] = str(answer["reason"])[:TEXT_MAX]
            if not isinstance(answer["ok"], bool) or not isinstance(answer["seq"], int):
                return None
        ending = report["ending"]
        if ending is not None:
            ending["reason"], ending["exit_code"] = str(ending["reason"])[:TEXT_MAX], int(ending["exit_code"])
            str(ending["outcome"])
    except (KeyError, TypeError, ValueError):
        return None
    return cast("AttemptState", report)
