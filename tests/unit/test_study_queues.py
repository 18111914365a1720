"""Made-up jobs and traces from elsewhere run in the queues of the cluster that is studied."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from phalanx.cluster.cluster import flat
from phalanx.cluster.queues import Queue
from phalanx.server.studies.queues import housed
from phalanx.simulate.studies.source import Recorded, source_of
from phalanx.simulate.studies.study import Study
from phalanx.simulate.trace import Trace, TraceJob

CLUSTER = replace(flat(4, 8), queues=(Queue("research"), Queue("research/llm"), Queue("research/rl"), Queue("vision")))
MADE = source_of("synthetic:jobs=200,load=0.9,queues=4")


def test_queues_that_the_cluster_lacks_take_turns_in_those_that_jobs_may_be_submitted_to() -> None:
    study = housed(Study(CLUSTER, MADE))
    found = Counter(job.queue for job in study.source.at(32, None, 0, 0).jobs)
    made = Counter(job.queue for job in MADE.at(32, None, 0, 0).jobs)
    assert found == {
        "research/llm": made["q0"] + made["q3"],
        "research/rl": made["q1"],
        "vision": made["q2"],
    }
    assert {job.queue for job in study.source.at(32, None, 7, 0).jobs} == set(found), "another seed has the same"


def test_a_job_of_a_queue_that_there_is_stays_in_it_and_the_others_are_told() -> None:
    jobs = tuple(TraceJob(f"j{at}", at, 1_000, 1, queue=queue) for at, queue in enumerate(("vision", "nlp", "vision")))
    study = housed(Study(CLUSTER, Recorded(Trace("log", jobs))))
    assert isinstance(study.source, Recorded)
    assert [job.queue for job in study.source.trace.jobs] == ["vision", "research/llm", "vision"]
    assert study.source.trace.notes == (
        "jobs of queues that the cluster does not have ran in its own: nlp in research/llm",
    )


def test_where_every_queue_is_known_or_the_cluster_has_none_nothing_is_changed() -> None:
    known = Study(CLUSTER, Recorded(Trace("log", (TraceJob("j", 0, 1_000, 1, queue="vision"),))))
    assert housed(known) is known
    bare = Study(flat(4, 8), MADE)
    assert housed(bare) is bare
