"""Job files as text: read once here, so that errors name file and line, then handed to the server as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from phalanx.cli.client import Client, Refused, Unreachable
from phalanx.cli.files import text_of
from phalanx.cli.output import say
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.workload.job import Job


class Site(NamedTuple):
    """What only a cluster knows: its GPU types, its levels and its storage tiers; none, where it is not known."""

    gpu_types: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    tiers: tuple[str, ...] | None = None

    def read(self, text: str, path: str) -> Job:
        """The job of a file on this cluster."""
        from phalanx.workload.formats.native import read_job

        return read_job(text, path, job_id="0", gpu_types=self.gpu_types, levels=self.levels, tiers=self.tiers)


def site_of(client: Client) -> Site:
    """That of a server, as far as it tells."""
    try:
        told = client.get("/cluster")
    except (Refused, Unreachable):
        # A file that is wrong anywhere is told of first.
        return Site()
    tiers = told.get("storage_tiers")
    return Site(
        tuple(told.get("gpu_types", ())),
        tuple(told.get("levels", ())),
        tuple(tiers) if tiers is not None else None,
    )


def read_checked(path: str, site: Site) -> str:
    """The text of a job file that is one."""
    text = text_of(path)
    site.read(text, path)
    return text


def tell_of_batches(texts: Sequence[str], client: Client) -> None:
    """Says on standard error where batches of trainings are not shared out evenly; the server has taken the jobs."""
    for text in texts:
        if "batch:" in text:
            from phalanx.words.batch import batch_words

            with suppress(PhalanxError):
                if words := batch_words(site_of(client).read(text, "")):
                    say(words, err=True)


OF_NO_FILE = "job:1: "
"""Where a server says that something is wrong in a job that came without a file."""


def with_file(refused: Refused, paths: Sequence[str]) -> Refused:
    """What a server does not take, with the file that it is from, where the server says which of them it is."""
    if not paths:
        return Refused(str(refused).removeprefix(OF_NO_FILE), refused.index)
    if refused.index is None or refused.index >= len(paths):
        return refused
    return Refused(f"{paths[refused.index]}: {refused}", refused.index)
