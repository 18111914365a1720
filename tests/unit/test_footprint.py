"""What jobs say of their memory within a step, and what turns and moved memory cost them in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import a_job
from phalanx.cluster.cluster import Cluster, Node
from phalanx.cluster.device import Mode, Portion
from phalanx.cluster.topology import Topology
from phalanx.placement.sharing import INTERFERENCE, Interference
from phalanx.simulate.submission import Submitter
from phalanx.simulate.trace import TraceJob
from phalanx.simulate.world.moved import speed_with_moved
from phalanx.simulate.world.speed import SpeedModel
from phalanx.simulate.world.turns import Stint, speed_in_turns, stint_of
from phalanx.workload.footprint import Footprint, footprint_of, step_ms_of
from phalanx.workload.job import Job

NOW = Portion(Mode.TURNS, 500, 0, turns=2, turn=0)
AT_STEP = Portion(Mode.TURNS, 500, 0, turns=2, turn=0, at_step=True)
SPEEDS = SpeedModel(Topology(Cluster((Node("n0", (), 1),))))


def job(high_gb: float = 0.0, **labels: str) -> Job:
    return a_job("a", task={"gpu_memory_gb": high_gb}, labels=tuple(labels.items()))


def test_a_job_says_its_memory_by_what_it_asks_for_and_a_label() -> None:
    assert footprint_of(job(40.0, gpu_memory_low_gb="1.5")) == Footprint(40.0, 1.5)
    assert footprint_of(job(40.0)) == Footprint(40.0, 40.0)
    assert footprint_of(job(40.0, gpu_memory_low_gb="50")) == Footprint(40.0, 40.0)
    assert footprint_of(job(gpu_memory_low_gb="1")) is None
    assert step_ms_of(job(step_ms="250")) == 250


@pytest.mark.parametrize("wrong", ["", "much", "-1", "nan", "inf"])
def test_a_label_that_is_no_size_or_time_says_nothing(wrong: str) -> None:
    assert footprint_of(job(40.0, gpu_memory_low_gb=wrong)) == Footprint(40.0, 40.0)
    assert step_ms_of(job(step_ms=wrong)) is None
    assert step_ms_of(job(step_ms="0")) is None


def test_a_turn_goes_on_to_the_end_of_the_step_and_moves_what_is_left_then() -> None:
    told = job(40.0, gpu_memory_low_gb="1", step_ms="7000")
    assert stint_of(told, AT_STEP, INTERFERENCE) == Stint(63_000, pytest.approx(45.0))
    assert stint_of(told, NOW, INTERFERENCE) == Stint(60_000, pytest.approx(825.0))


def test_a_step_that_is_longer_than_a_turn_is_done_once() -> None:
    assert stint_of(job(40.0, step_ms="90000"), AT_STEP, INTERFERENCE).runs_ms == 90_000


def test_who_says_nothing_loses_what_was_measured() -> None:
    alike = stint_of(job(), AT_STEP, INTERFERENCE)
    assert speed_in_turns(alike, [alike]) == pytest.approx(0.925 / 2)
    assert SPEEDS.shared(job(), AT_STEP, [AT_STEP], [job()]) == SPEEDS.shared(job(), NOW, [NOW], [job()])


def test_what_the_other_hands_on_counts_too() -> None:
    """The other loses 7.5 % of its turn as nothing is known of it: a round takes 60 + 0.805 + 60 + 4.865 s."""
    told = job(40.0, gpu_memory_low_gb="20")
    for company in ([job()], [None]):
        speed = SPEEDS.shared(told, AT_STEP, [AT_STEP], company)
        assert speed == pytest.approx(60 / (60 + 0.805 + 60 + 60 * 0.075 / 0.925))
    assert SPEEDS.shared(job(), AT_STEP, [AT_STEP], [told]) == pytest.approx(60 / (125.67), rel=0.001)


@given(
    st.lists(st.tuples(st.floats(1, 141), st.floats(0, 1), st.integers(1, 600_000)), min_size=2, max_size=8),
)
def test_those_who_go_round_never_get_more_than_one_device_and_hardly_lose_between_steps(
    told: list[tuple[float, float, int]],
) -> None:
    jobs = [job(high, gpu_memory_low_gb=str(high * part), step_ms=str(step_ms)) for high, part, step_ms in told]
    for portion in (AT_STEP, NOW):
        stints = [stint_of(each, portion, INTERFERENCE) for each in jobs]
        speeds = [speed_in_turns(each, [*stints[:i], *stints[i + 1 :]]) for i, each in enumerate(stints)]
        assert all(speed > 0 for speed in speeds)
        assert sum(speeds) <= 1
    switches = [stint_of(each, portion, INTERFERENCE).switch_ms for each in jobs for portion in (AT_STEP, NOW)]
    assert all(at_step <= now for at_step, now in zip(switches[::2], switches[1::2], strict=True))


def left(lent_gb: float) -> Portion:
    return Portion(Mode.FRACTION, 1000, 0, revocable=True, lent_mb=int(1024 * lent_gb))


def test_memory_on_the_host_is_copied_there_and_back_in_each_step() -> None:
    """25 GB: 1 s beside a step of 1 s; at a tenth of the compute beside 10 s."""
    assert speed_with_moved(1.0, job(40.0), left(15), INTERFERENCE) == pytest.approx(0.5)
    assert speed_with_moved(0.1, job(40.0), left(15), INTERFERENCE) == pytest.approx(1 / 11)
    assert speed_with_moved(1.0, job(40.0, step_ms="4000"), left(15), INTERFERENCE) == pytest.approx(0.8)
    assert speed_with_moved(1.0, job(40.0), left(40), INTERFERENCE) == 1.0
    assert speed_with_moved(1.0, job(), left(0), INTERFERENCE) == 1.0


def test_only_what_is_revocable_has_memory_on_the_host() -> None:
    own = Portion(Mode.FRACTION, 1000, 0)
    assert SPEEDS.shared(job(40.0), own, []) == 1.0
    assert SPEEDS.shared(job(40.0), left(0), []) < 0.5


@pytest.mark.parametrize("wrong", [{"freeze_ms": -1}, {"host_gb_per_s": 0.0}, {"host_gb_per_s": float("inf")}])
def test_what_is_no_time_or_rate_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"interference.{next(iter(wrong))}"):
        Interference(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": Mode.FRACTION, "at_step": True},
        {"mode": Mode.FRACTION, "lent_mb": 1},
        {"mode": Mode.FRACTION, "lent_mb": -1, "revocable": True},
    ],
)
def test_a_portion_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="portion: "):
        Portion(compute_permille=500, memory_mb=0, **wrong)  # type: ignore[arg-type]


def test_a_job_of_a_trace_has_what_the_trace_says_where_the_cluster_says_what_gpus_have() -> None:
    traced = TraceJob("a", 0, 1000, 1, gpu_memory_mb=4096, gpu_memory_low_mb=512, step_ms=250)
    told = Submitter(Cluster((Node("n0", (), 1, gpu_memory_gb=80),))).job(traced)
    assert footprint_of(told) == Footprint(4.0, 0.5)
    assert step_ms_of(told) == 250
    assert footprint_of(Submitter(Cluster((Node("n0", (), 1),))).job(traced)) is None
