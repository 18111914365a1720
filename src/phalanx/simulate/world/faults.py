"""Failures of a run: from a file, or by the name of a profile by which they are drawn."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypeAlias

from phalanx.cluster.cluster import Cluster, Health
from phalanx.document.error import brief
from phalanx.faults.generate.file import is_occurrences, occurrences_of
from phalanx.faults.generate.occurrence import Occurrence
from phalanx.faults.generate.plan import Plan, plan_of
from phalanx.faults.taxonomy.published import PROFILES
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.rows import Rows, open_rows
from phalanx.simulate.traces.values import SECONDS, milliseconds

REQUIRED = ("at_s", "node", "health")
OPTIONAL = ("reason",)
HEALTHS = ", ".join(each for each in Health if each is not Health.SPARE)

NodeFault: TypeAlias = tuple[int, str, str, str]
"""When (milliseconds), which node, what becomes of it, and why."""


class Failures(NamedTuple):
    """Failures in one of three forms."""

    faults: tuple[NodeFault, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    plan: Plan | None = None


def failures_of(text: str | None, cluster: Cluster) -> Failures:
    """What `--faults` names: a file with either of two headers, or a profile."""
    if text is None:
        return Failures()
    is_file = Path(text).exists()
    if not is_file and text.partition(":")[0] in PROFILES:
        return Failures(plan=plan_of(text))
    if not is_file:
        known = ", ".join(PROFILES)
        raise TraceError(text, f"No such file or directory, and no profile of that name (there is: {known})")
    if not _has_occurrences(text):
        return Failures(faults=read_faults(text, cluster))
    names = [node.name for node in cluster.nodes]
    return Failures(occurrences=occurrences_of(Path(text).read_text(encoding="utf-8"), text, names))


def _has_occurrences(path: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return is_occurrences(file.readline())
    except (OSError, UnicodeDecodeError):
        return False


def read_faults(path: str, cluster: Cluster) -> tuple[NodeFault, ...]:
    """Reads a CSV with `at_s, node, health` and, if there, `reason`, in the order of time.

    A row that does not fit the cluster is an error that names its line.
    """
    try:
        with open_rows(path) as rows:
            return tuple(sorted(_faults(rows, cluster), key=lambda fault: fault[0]))
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error


def _faults(rows: Rows, cluster: Cluster) -> list[NodeFault]:
    for name in rows.header:
        if name not in (*REQUIRED, *OPTIONAL):
            known = ", ".join((*REQUIRED, *OPTIONAL))
            raise TraceError(rows.source, f"there is no column {brief(name)!r} of faults (there is: {known})", 1)
    nodes = {node.name for node in cluster.nodes}

    def node_named(text: str) -> str:
        if text not in nodes:
            raise ValueError(text)
        return text

    def health_named(text: str) -> Health:
        health = Health(text)
        if health is Health.SPARE:
            # Which nodes are spares follows from the cluster.
            raise ValueError(text)
        return health

    at_ms = rows.reader("at_s", milliseconds, SECONDS)
    node = rows.reader("node", node_named, f"a node of the cluster, such as {min(nodes, default='(it has none)')}")
    health = rows.reader("health", health_named, f"one of {HEALTHS}")
    reason = rows.reader("reason", str, "text") if "reason" in rows.header else None
    return [
        (at_ms(line, row), node(line, row), health(line, row).value, reason(line, row) if reason else "")
        for line, row in rows.rows()
    ]
