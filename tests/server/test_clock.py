"""The clock of the loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.server.clock import NS_PER_MS, Clock


class Machine:
    """A machine whose clocks the test sets."""

    def __init__(self, wall_ms: int) -> None:
        self.wall_ns = wall_ms * NS_PER_MS
        self.passed_ns = 0

    def clock(self, not_before_ms: int = 0) -> Clock:
        return Clock(not_before_ms, lambda: self.wall_ns, lambda: self.passed_ns)

    def let_pass(self, duration_ms: int) -> None:
        self.wall_ns += duration_ms * NS_PER_MS
        self.passed_ns += duration_ms * NS_PER_MS


def test_it_tells_the_time_of_the_wall() -> None:
    machine = Machine(1_000_000)
    clock = machine.clock()
    machine.let_pass(2_500)
    assert clock.now_ms() == 1_002_500


def test_it_does_not_go_behind_the_last_record_after_a_restart() -> None:
    assert Machine(1_000).clock(not_before_ms=5_000).now_ms() == 5_000


def test_when_the_wall_is_set_an_hour_ahead_it_follows_slowly() -> None:
    machine = Machine(0)
    clock = machine.clock()
    machine.wall_ns += 3_600_000 * NS_PER_MS
    machine.let_pass(1_000)
    assert clock.now_ms() == 1_100, "a second passed, and a tenth of it is caught up"


def test_when_the_wall_is_set_back_time_still_passes() -> None:
    machine = Machine(10_000_000)
    clock = machine.clock()
    machine.wall_ns -= 3_600_000 * NS_PER_MS
    machine.let_pass(1_000)
    assert clock.now_ms() == 10_000_900


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(-100_000, 100_000)), max_size=50))
def test_it_never_goes_back_whatever_is_done_to_the_wall(steps: list[tuple[int, int]]) -> None:
    machine = Machine(1 << 40)
    clock = machine.clock()
    last = clock.now_ms()
    for passed_ms, set_by_ms in steps:
        machine.let_pass(passed_ms)
        machine.wall_ns += set_by_ms * NS_PER_MS
        now = clock.now_ms()
        assert last <= now <= last + passed_ms * 1.1 + 1
        last = now
