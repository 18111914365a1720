"""Files that people hand to verbs: opened here, read by the rooms that know their form."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.cluster.cluster import Cluster
    from phalanx.engine.state.journal import Journal
    from phalanx.workload.job import Job

TEXT_BYTES_MAX = 64 * 1024 * 1024


class FileError(PhalanxError):
    """A file that cannot be opened or is not text."""


def cluster_from(path: str, now_ms: int) -> Cluster:
    """The cluster of a file, as it is read now."""
    from phalanx.cluster.formats.native import read_cluster
    from phalanx.simulate.plugins import read_policy

    return read_cluster(text_of(path), path, read_policy, now_ms)


def jobs_from(path: str, first_id: int, cluster: Cluster, now_ms: int) -> tuple[Job, ...]:
    """The job of a file, or the members of its array, submitted now."""
    from phalanx.workload.array import members
    from phalanx.workload.formats.native import read_job

    types = tuple(dict.fromkeys(node.gpu_type for node in cluster.nodes if node.gpu_type))
    number, tiers = str(first_id), cluster.storage_tiers
    return members(read_job(text_of(path), path, number, now_ms, types, cluster.levels, tiers))


def check_after(jobs: list[Job], paths: Mapping[str, str]) -> None:
    """Refuses jobs of which one waits for itself or for none of them, where its file (by its id) says so."""
    from phalanx.workload.after import AfterError, bound, by_dependency, check_known
    from phalanx.workload.formats.native import place_of_after

    try:
        check_known(by_dependency(bound(jobs)))
    except AfterError as error:
        other = next((job for job in jobs if job.id == error.other), None)
        names = (error.other,) if other is None else (other.id, other.name, other.array_of)
        path = paths[error.job]
        raise place_of_after(text_of(path), path, names).error(str(error)) from error


def save_journal(journal: Journal, path: str) -> None:
    """Writes a journal, a record a line."""
    try:
        with open(path, "wb") as file:
            file.writelines(line + b"\n" for line in journal.lines())
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error


def what_it_is(mode: int) -> str:
    """What is in a file's place, by its mode."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def text_of(path: str) -> str:
    """The text of a file."""
    try:
        with open(path, "rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
        if len(content) > TEXT_BYTES_MAX:
            raise FileError(f"{path}: expected at most {TEXT_BYTES_MAX} bytes")
        return content.decode()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(
            f"{path}: expected UTF-8 text, found byte {content[error.start]:#04x} at {error.start}"
        ) from None
