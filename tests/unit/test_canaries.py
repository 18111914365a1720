"""What becomes of nodes in quarantine by the canaries that run there."""

from __future__ import annotations

from itertools import count

import pytest

from builders import World, a_job
from phalanx.cluster.cluster import Health, flat
from phalanx.engine.state.records import JobState
from phalanx.faults.health.canary import CanaryError, read_canary
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import DeviceHealthChanged, JobHeld, NodeHealthChanged, Outcome

MINUTE = 60_000


class Watched:
    """Ten nodes of four GPUs, n0 of which is in quarantine for half an hour, and the watch over them."""

    def __init__(self, gpus: int = 4) -> None:
        self.world = World(flat(10, 4))
        self.world.health("n0", Health.SUSPECT)
        self._numbers = count(1)
        self.template = read_canary(f"command: [check]\ngpus: {gpus}", "canary.yaml")
        self.watch = self.fresh()
        self.reason = ""

    def fresh(self) -> NodeWatch:
        """The watch of a server that starts now."""
        return NodeWatch(self.world.state, Rules(first_ms=30 * MINUTE), self.template)

    def look(self, after_ms: int = 0) -> None:
        """Time passes, and the watch has happen what it wants."""
        self.world.now += after_ms
        events = self.watch.events(self.world.now, lambda: str(next(self._numbers)))
        for event in events:
            if isinstance(event, NodeHealthChanged):
                self.reason = event.reason
        self.world.turn(*events)

    @property
    def health(self) -> Health:
        return self.world.state.capacity.health[0]

    def have_one_run(self, job: str = "1") -> None:
        self.look(after_ms=30 * MINUTE)
        self.look()
        self.world.done(job)
        assert self.world.status(job) is JobState.RUNNING
        assert set(self.world.where(job)) == {"n0"}


def test_no_canary_runs_before_the_time_of_the_quarantine_is_over() -> None:
    watched = Watched()
    watched.look(after_ms=29 * MINUTE)
    assert not watched.world.state.jobs


def test_one_that_succeeds_brings_its_node_back() -> None:
    watched = Watched()
    watched.have_one_run()
    assert watched.reason == "quarantine: its canary is job 1"
    watched.world.end("1")
    watched.look()
    assert watched.health is Health.HEALTHY
    assert watched.reason == "quarantine: over, its canary, job 1, has succeeded"


def test_one_that_fails_keeps_its_node_in_quarantine_for_twice_as_long() -> None:
    watched = Watched()
    watched.have_one_run()
    watched.world.end("1", Outcome.FAILED)
    watched.look()
    assert watched.health is Health.SUSPECT
    assert watched.reason.startswith("quarantine: its canary, job 1, has failed")
    watched.look(after_ms=59 * MINUTE)
    assert "2" not in watched.world.state.jobs
    watched.look(after_ms=MINUTE)
    watched.look()
    assert watched.world.where("2")


def test_one_that_hangs_has_failed_after_ten_minutes() -> None:
    watched = Watched()
    watched.have_one_run()
    watched.world.turn(after_ms=10 * MINUTE)
    watched.world.done("1")
    watched.look()
    assert watched.health is Health.SUSPECT
    assert "ran longer than max_run" in watched.reason


def test_one_that_is_lost_or_does_not_start_has_failed() -> None:
    watched = Watched()
    watched.look(after_ms=30 * MINUTE)
    watched.look()
    watched.world.failed("1")
    watched.look()
    watched.look()
    assert watched.world.status("1") is JobState.CANCELLED
    assert watched.health is Health.SUSPECT
    assert "it did not start on node n0" in watched.reason


def test_it_waits_for_what_still_runs_on_its_node() -> None:
    watched = Watched()
    watched.world.health("n0", Health.HEALTHY)
    watched.world.run(a_job("old", 4))
    assert set(watched.world.where("old")) == {"n0"}
    watched.world.health("n0", Health.SUSPECT)
    watched.watch = watched.fresh()
    watched.look(after_ms=30 * MINUTE)
    watched.look()
    assert "1" not in watched.world.state.jobs
    watched.world.end("old")
    watched.look()
    assert watched.world.where("1")


def test_an_operators_word_ends_it() -> None:
    watched = Watched()
    watched.have_one_run()
    watched.world.health("n0", Health.HEALTHY)
    watched.look()
    watched.world.done("1")
    assert watched.world.status("1") is JobState.CANCELLED
    assert watched.health is Health.HEALTHY


def test_a_node_with_too_few_sound_gpus_for_it_comes_back_on_probation() -> None:
    watched = Watched()
    watched.world.turn(DeviceHealthChanged("n0", 3, Health.FAILED))
    watched.look(after_ms=30 * MINUTE)
    watched.look()
    assert watched.health is Health.HEALTHY
    assert watched.reason.endswith("it has too few GPUs for a canary: the next job that ends there decides")


def test_after_a_restart_what_runs_is_cancelled_and_begun_anew() -> None:
    watched = Watched()
    watched.have_one_run()
    watched.watch = watched.fresh()
    watched.look()
    watched.world.done("1")
    assert watched.world.status("1") is JobState.CANCELLED
    watched.have_one_run("2")


def test_a_held_job_of_a_user_is_left_alone() -> None:
    watched = Watched()
    watched.world.submit(a_job("theirs", labels=(("phalanx/canary", "n0"),), user="ann"))
    watched.world.turn(JobHeld("theirs"))
    watched.watch = watched.fresh()
    watched.look()
    assert not watched.world.job("theirs").cancelled


@pytest.mark.parametrize(
    "text",
    [
        "command: [a]\ngang: [{role: worker, replicas: 2, gpus: 4}]",
        "kind: service\ncommand: [a]\ngpus: 1",
        "command: [a]\ngpus: 1\narray: 1-3",
        "command: [a]\ngpus: 1\nshare: {fraction: 0.5}",
    ],
)
def test_a_job_of_another_kind_is_no_canary(text: str) -> None:
    with pytest.raises(CanaryError, match="expected a canary of one task with whole GPUs"):
        read_canary(text, "canary.yaml")
