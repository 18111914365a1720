"""A device on which jobs fail is taken out alone, and comes back."""

from __future__ import annotations

from itertools import count

from builders import World, a_job
from phalanx.cluster.cluster import Health, flat
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import AttemptEnded, DeviceHealthChanged, Event, Outcome

MINUTE = 60_000
NUMBERS = count(1)


class Watched:
    """Five nodes of four GPUs, and the watch over them."""

    def __init__(self) -> None:
        self.world = World(flat(5, 4))
        self.watch = NodeWatch(self.world.state, Rules(first_ms=30 * MINUTE))
        self.events: list[Event] = []

    def fill(self, gpus: int = 1, bad: tuple[str, int] | None = None) -> None:
        """Jobs on all GPUs that are in service; those on a bad one fail, and all others succeed."""
        jobs = [a_job(f"j{next(NUMBERS)}", gpus) for _ in range(20 // gpus)]
        self.world.submit(*jobs)
        held = [job.id for job in jobs if self.world.where(job.id)]
        self.world.done(*held)
        for job in held:
            ((node, devices),) = self.world.where(job).items()
            failed = bad is not None and bad[0] == node and bad[1] in devices
            event = AttemptEnded(job, 1, Outcome.FAILED if failed else Outcome.SUCCEEDED)
            self.watch.note(event, self.world.now)
            self.world.turn(event)
        self.look()

    def look(self, after_ms: int = 0) -> None:
        self.world.now += after_ms
        found = self.watch.events(self.world.now, lambda: "none")
        self.events += found
        self.world.turn(*found)

    @property
    def suspect(self) -> list[tuple[int, int]]:
        return [key for key, health in self.world.state.capacity.device_health.items() if health is Health.SUSPECT]

    def until_found(self, bad: tuple[str, int]) -> None:
        for _ in range(6):
            self.fill(bad=bad)
            if self.suspect:
                return


def test_a_gpu_on_which_job_after_job_fails_is_taken_out_and_its_node_goes_on() -> None:
    watched = Watched()
    watched.until_found(("n2", 3))
    assert watched.suspect == [(2, 3)]
    [change] = watched.events
    assert isinstance(change, DeviceHealthChanged)
    assert change.reason.startswith("quarantine: 3 of 3 jobs failed there")
    assert watched.world.state.capacity.health[2] is Health.HEALTHY
    for _ in range(3):
        watched.fill(bad=("n2", 3))
    assert watched.world.state.capacity.health[2] is Health.HEALTHY


def test_it_comes_back_after_its_time_and_a_job_that_succeeds_clears_it() -> None:
    watched = Watched()
    watched.until_found(("n2", 3))
    watched.look(after_ms=29 * MINUTE)
    assert watched.suspect
    watched.look(after_ms=MINUTE)
    assert not watched.suspect
    for _ in range(3):
        watched.fill()
    assert not watched.suspect


def test_one_that_fails_the_next_job_too_is_out_for_twice_as_long() -> None:
    watched = Watched()
    watched.until_found(("n2", 3))
    watched.look(after_ms=30 * MINUTE)
    watched.fill(bad=("n2", 3))
    assert watched.suspect == [(2, 3)]
    watched.look(after_ms=59 * MINUTE)
    assert watched.suspect
    watched.look(after_ms=MINUTE)
    assert not watched.suspect


def test_jobs_on_whole_nodes_blame_the_node() -> None:
    watched = Watched()
    for _ in range(4):
        watched.fill(gpus=4, bad=("n2", 3))
    assert not watched.suspect
    assert watched.world.state.capacity.health[2] is Health.SUSPECT


def test_after_a_restart_a_suspect_gpu_is_in_quarantine_still_and_an_operators_word_ends_it() -> None:
    watched = Watched()
    watched.until_found(("n2", 3))
    watched.watch = NodeWatch(watched.world.state, Rules(first_ms=30 * MINUTE))
    watched.look(after_ms=29 * MINUTE)
    assert watched.suspect
    watched.world.turn(DeviceHealthChanged("n2", 3, Health.HEALTHY))
    watched.fill()
    watched.look(after_ms=60 * MINUTE)
    assert not watched.suspect


def test_the_only_gpu_of_a_node_is_the_node_itself() -> None:
    watched = Watched()
    watched.world = World(flat(20, 1))
    watched.watch = NodeWatch(watched.world.state, Rules(first_ms=30 * MINUTE))
    for _ in range(4):
        watched.fill(bad=("n7", 0))
    assert not watched.suspect
    assert watched.world.state.capacity.health[7] is Health.SUSPECT
