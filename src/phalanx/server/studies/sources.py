"""What a study runs on: the cluster and the jobs that it was asked for, read in the process of the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from phalanx.cluster.cluster import Cluster
from phalanx.errors import PhalanxError
from phalanx.faults.generate.plan import plan_of
from phalanx.policy.registry import is_file, split
from phalanx.server.cluster.difference import present_cluster
from phalanx.server.options import Options as ServerOptions
from phalanx.server.store.database import open_reader
from phalanx.server.store.journal import lines_after
from phalanx.server.store.recovery import recover
from phalanx.server.studies.asked import HISTORY, SYNTHETIC, Asked
from phalanx.server.studies.queues import Housed, housed
from phalanx.server.studies.shelf import TRACE
from phalanx.simulate.entry import Options, policies_of, study_of
from phalanx.simulate.plugins import SPELLED_OUT
from phalanx.simulate.studies.source import Recorded
from phalanx.simulate.studies.study import Study
from phalanx.simulate.trace import Trace
from phalanx.simulate.traces.formats.journal import read_lines
from phalanx.simulate.traces.open import read_trace_cluster

CLUSTER_FILE = "cluster"


class SourceError(PhalanxError):
    """Something that a study on a server does not take."""


def study_for(asked: Asked, options: ServerOptions) -> Study:
    """The study that was asked for. Files are those of its folder, which is the working directory."""
    cluster = _cluster(asked, options)
    study = study_of(
        cluster,
        _history(options) if asked.source == HISTORY else asked.source if asked.source.startswith(SYNTHETIC) else TRACE,
        Options(
            placement=asked.placement,
            costs=asked.costs,
            load=asked.load or None,
            window=asked.window or None,
            until=asked.until or None,
            estimates=asked.estimates or None,
            skip_bad_rows=asked.skip_bad_rows,
        ),
    )
    if asked.faults:
        study = replace(study, plan=plan_of(asked.faults))
    if isinstance(study.source, Recorded) and not study.source.trace.jobs:
        why = f" ({'; '.join(study.source.trace.notes)})" * bool(study.source.trace.notes)
        raise SourceError(f"no job has run to its end yet, so there is no history to run{why}")
    if isinstance(study.source, Recorded):
        study = replace(study, source=Recorded(replace(study.source.trace, name=asked.trace)))
    return study if asked.cluster else housed(study)


def notes_of(study: Study, asked: Asked) -> list[str]:
    """Which failures there are, and what reading the trace changed, or left out."""
    failures = [f"failures, drawn for each run: {asked.faults}, {study.plan.profile.title}"] if study.plan else []
    if isinstance(study.source, Housed):
        return [*failures, study.source.note]
    if not isinstance(study.source, Recorded):
        return failures
    trace = study.source.trace
    dropped = [f"{trace.dropped:,} bad rows left out, such as: {trace.bad_rows[0]}"] if trace.bad_rows else []
    return [*failures, *trace.notes, *dropped]


def specs_of(policies: Sequence[str], study: Study) -> dict[str, str]:
    """The policies of a study, as the engine takes them; that of the cluster if none is named.

    No file is read for them, and no code of a file is run: their names come from users.
    """
    wanted = list(policies) or [study.cluster.policy]
    for spec in wanted:
        need_no_file(spec)
    return policies_of(wanted)


def need_no_file(spec: str) -> None:
    """Refuses a policy in a file, or with a file as a parameter."""
    name, rest = split(spec)
    samples = [pair.partition("=")[2] for pair in rest.split(",") if pair.startswith("samples=")]
    if is_file(spec) or is_file(name) or not all(SPELLED_OUT.fullmatch(value) for value in samples):
        raise SourceError(f"policy {spec[:200]!r}: a server knows policies by their names, and reads no file for one")


def _cluster(asked: Asked, options: ServerOptions) -> Cluster:
    if asked.cluster:
        Path(CLUSTER_FILE).write_text(asked.cluster, "utf-8")
        return read_trace_cluster(CLUSTER_FILE)
    database = open_reader(options.store_url)
    with database.reading() as connection:
        return present_cluster(recover(connection, database.url))


def _history(options: ServerOptions) -> Trace:
    """The jobs of the server's own journal."""
    database = open_reader(options.store_url)
    with database.reading() as connection:
        return read_lines(enumerate(lines_after(connection, -1), start=1), "history")
