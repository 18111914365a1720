"""Opening a trace or the file of a cluster: what it is shows in what is in it, not in its name."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

from phalanx.cluster.cluster import Cluster
from phalanx.cluster.formats.native import read_cluster as read_native
from phalanx.document.error import brief
from phalanx.document.field import decode
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.error import TraceError
from phalanx.simulate.traces.formats import columns, helios, journal, openb, pai, philly, sacct, tiresias
from phalanx.simulate.traces.rows import ENCODING

HEAD_BYTES = 65_536
"""Enough for a header; the first record of a journal may be longer and is known by its first bytes."""

PARQUET_MAGIC = b"PAR1"

NO_TRACES = {
    b"\x1f\x8b": "this is packed by gzip: unpack it first, as by gunzip",
    b"PK\x03\x04": "this is a zip archive: unpack it first",
    b"phalanx simulation ": "this is a saved run: go on with it by phalanx simulate --resume FILE",
}
"""What people take for a trace or a cluster, by its first bytes."""

File: TypeAlias = str | PathLike[str]
TraceReader = Callable[[str, bool], Trace]
ClusterReader = Callable[[str], Cluster]


@dataclass(frozen=True, slots=True)
class Format:
    """A format, with what its header has that no other has, and what reads it: jobs, or a cluster."""

    name: str
    marks: Collection[str] = ()
    read_jobs: TraceReader | None = None
    read_cluster: ClusterReader | None = None


PARQUET = Format("phalanx Parquet (the columns of the CSV)", read_jobs=columns.read_parquet)
PHILLY_LOG = Format("Philly cluster_job_log (a JSON list)", read_jobs=philly.read_log)
JOURNAL = Format(
    "phalanx journal (a JSON record a line)", read_jobs=journal.read_journal, read_cluster=journal.read_cluster
)
TABLES = (
    Format(
        f"phalanx CSV ({', '.join(column.name for column in columns.REQUIRED)}, …)",
        ("submit_s",),
        read_jobs=columns.read_csv,
    ),
    Format(
        f"Tiresias jobs CSV ({', '.join(tiresias.JOB_COLUMNS)})",
        ("num_gpu", "submit_time"),
        read_jobs=tiresias.read_jobs,
    ),
    Format(
        f"distilled Philly CSV ({','.join(philly.DISTILLED_COLUMNS)})",
        ("timestamp", "num_gpus"),
        read_jobs=philly.read_distilled,
    ),
    Format(
        f"Helios or Acme log ({', '.join(helios.COLUMNS)}, …)",
        ("gpu_num", "submit_time", "duration"),
        read_jobs=helios.read_log,
    ),
    Format(
        f"Alibaba 2023 (openb) list of pods ({', '.join(openb.POD_COLUMNS)}, …)",
        ("num_gpu", "gpu_milli"),
        read_jobs=openb.read_pods,
    ),
    Format(
        f"Alibaba 2020 table of tasks ({', '.join(pai.TASK_COLUMNS)})",
        ("job_name", "task_name", "plan_gpu"),
        read_jobs=pai.read_tasks,
    ),
    Format(
        f"Alibaba 2023 (openb) list of nodes ({', '.join(openb.NODE_COLUMNS)})",
        ("sn", "cpu_milli", "gpu"),
        read_cluster=openb.read_nodes,
    ),
    Format(
        f"Alibaba 2020 table of machines ({', '.join(pai.MACHINE_COLUMNS)})",
        ("machine", "gpu_type", "cap_gpu"),
        read_cluster=pai.read_machines,
    ),
    Format(
        f"Tiresias cluster CSV ({', '.join(tiresias.CLUSTER_COLUMNS)})",
        ("num_switch", "num_node_p_switch", "num_gpu_p_node"),
        read_cluster=tiresias.read_cluster,
    ),
    Format(
        f"Philly cluster_machine_list ({', '.join(philly.MACHINE_COLUMNS)})",
        philly.MACHINE_COLUMNS[:2],
        read_cluster=philly.read_machines,
    ),
)
BARE_TASKS = Format("Alibaba 2020 table of tasks without a header", read_jobs=pai.read_bare_tasks)
SACCT = Format(f"sacct -P ({'|'.join(sacct.COLUMNS)}|…)", sacct.COLUMNS, read_jobs=sacct.read_sacct)
FORMATS = (*TABLES, BARE_TASKS, SACCT, PARQUET, PHILLY_LOG, JOURNAL)

_RECORD = re.compile(r'\{\s*"seq"\s*:')


def read_trace(path: File, skip_bad_rows: bool = False) -> Trace:
    """Reads a trace of any known format. With `skip_bad_rows` a bad row is dropped and counted, else it is an error."""
    path = fspath(path)
    try:
        found = _recognise(path)
        if found is None:
            known = "; ".join(each.name for each in FORMATS if each.read_jobs is not None)
            raise TraceError(path, f"not a trace known here: it begins {brief(_first_line(path))}; known are: {known}")
        if found.read_jobs is None:
            raise TraceError(path, f"this is a cluster, not a trace: {found.name}")
        return found.read_jobs(path, skip_bad_rows)
    except RecursionError:
        raise TraceError(path, "expected a trace, found values nested without end") from None
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error


def read_trace_cluster(path: File) -> Cluster:
    """Reads a cluster: our own cluster file, or the list of nodes that comes with a trace."""
    path = fspath(path)
    try:
        found = _recognise(path)
        if found is None:
            return read_native(decode(Path(path).read_bytes(), path), path)
        if found.read_cluster is None:
            raise TraceError(path, f"this is a trace, not a cluster: {found.name}")
        return found.read_cluster(path)
    except OSError as error:
        raise TraceError(path, error.strerror or str(error)) from error


def has_cluster(path: File) -> bool:
    """Whether a trace tells its cluster as well."""
    try:
        found = _recognise(fspath(path))
    except OSError:
        return False
    return found is not None and found.read_jobs is not None and found.read_cluster is not None


def _recognise(path: str) -> Format | None:
    with Path(path).open("rb") as file:
        head = file.read(HEAD_BYTES)
    if head.startswith(PARQUET_MAGIC):
        return PARQUET
    for magic, found in NO_TRACES.items():
        if head.startswith(magic):
            raise TraceError(path, found)
    text = _text(head, path).lstrip()
    if not text:
        raise TraceError(path, "the file is empty")
    if text.startswith("["):
        return PHILLY_LOG
    if _RECORD.match(text):
        return JOURNAL
    header = _header(text)
    if pai.has_no_header(header):
        return BARE_TASKS
    if all(mark in text.splitlines()[0].split("|") for mark in sacct.COLUMNS):
        return SACCT
    return next((each for each in TABLES if all(mark in header for mark in each.marks)), None)


def _text(head: bytes, path: str) -> str:
    try:
        # The last character may be cut off, which only ends the text here.
        text = codecs.getincrementaldecoder(ENCODING)().decode(head)
    except UnicodeDecodeError as error:
        line = head.count(b"\n", 0, error.start) + 1
        found = f"expected text in UTF-8, or Parquet; found the byte {head[error.start]:#04x}"
        raise TraceError(path, found, line) from None
    if "\0" in text:
        raise TraceError(path, "expected text in UTF-8, or Parquet; found a zero byte")
    return text


def _header(text: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader(text.splitlines()), [])]
    except csv.Error:
        return []


def _first_line(path: str) -> str:
    with Path(path).open("rb") as file:
        lines = _text(file.read(HEAD_BYTES), path).split("\n")
    return next(line.rstrip() for line in lines if line.strip())
