"""Jobs of queues that the server's cluster does not have take turns in those that it has: names from elsewhere mean
nothing to it, and its quotas are what a study of it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from phalanx.document.error import brief
from phalanx.engine.quota.quotas import Quotas
from phalanx.simulate.studies.source import Recorded, Source
from phalanx.simulate.studies.study import Study
from phalanx.simulate.trace import Trace


@dataclass(frozen=True, slots=True)
class Housed:
    """A source whose jobs are of other queues than it says, and in words which."""

    source: Source
    queues: Mapping[str, str]
    note: str

    def at(self, gpus: int, load: float | None, seed: int, first_seed: int) -> Trace:
        """The trace of a seed, at its own load or another."""
        return _renamed(self.source.at(gpus, load, seed, first_seed), self.queues)

    def load(self, gpus: int) -> float:
        """Its own offered load on so many GPUs."""
        return self.source.load(gpus)


def housed(study: Study) -> Study:
    """The study with all of its jobs in queues that its cluster has."""
    quotas = Quotas(study.cluster)
    if not quotas:
        return study
    trace = study.source.at(study.cluster.gpus, None, study.seed, study.seed)
    unknown = sorted({job.queue for job in trace.jobs} - set(quotas.accounts))
    if not unknown:
        return study
    leaves = quotas.leaves()
    queues = {queue: leaves[at % len(leaves)] for at, queue in enumerate(unknown)}
    into = brief(", ".join(f"{queue} in {place}" for queue, place in queues.items()))
    note = f"jobs of queues that the cluster does not have ran in its own: {into}"
    if isinstance(study.source, Recorded):
        recorded = _renamed(study.source.trace, queues)
        return replace(study, source=Recorded(replace(recorded, notes=(*recorded.notes, note))))
    return replace(study, source=Housed(study.source, queues, note))


def _renamed(trace: Trace, queues: Mapping[str, str]) -> Trace:
    jobs = tuple(replace(job, queue=queues[job.queue]) if job.queue in queues else job for job in trace.jobs)
    return replace(trace, jobs=jobs)
