"""How often each tier is saved to."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phalanx.train.checkpoint import Checkpointer, Retention, Shared
from phalanx.train.checkpoint.schedule import Cost, Rates, Schedule, daly_s, young_s
from phalanx.train.checkpoint.store import steps

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("cost_s", "mtbf_s", "young", "daly"),
    [(60, 1.8 * HOUR_S, 882, 842), (10, 1.8 * HOUR_S, 360, 353), (1, 1.8 * HOUR_S, 114, 113), (1, 1080, 46, 46)],
)
def test_intervals_of_young_and_daly(cost_s: float, mtbf_s: float, young: float, daly: float) -> None:
    assert young_s(cost_s, mtbf_s) == pytest.approx(young, rel=0.02)
    assert daly_s(cost_s, mtbf_s) == pytest.approx(daly, rel=0.02)


def test_saving_that_takes_longer_than_failures_leave_is_done_once_per_failure() -> None:
    assert daly_s(300, 100) == 100


@given(st.floats(0.1, 60), st.floats(1000, 1e6))
def test_dalys_interval_loses_no_more_than_its_neighbours(cost_s: float, mtbf_s: float) -> None:
    def lost(interval_s: float) -> float:
        # Daly's model: the expected time of a run of unit length, with restarts that take no time.
        from math import exp

        return mtbf_s * (exp((interval_s + cost_s) / mtbf_s) - 1) / interval_s

    best = daly_s(cost_s, mtbf_s)
    assert lost(best) <= 1.001 * min(lost(0.8 * best), lost(1.25 * best))


def test_deeper_tiers_are_needed_less_often() -> None:
    rates = Rates(nodes=128, beyond_peers=0.001)
    needed = [rates.per_second(tier) for tier in ("host", "peer", "local", "shared")]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] * 86_400 == pytest.approx(128 * 6.5e-3)


def schedule(**every: int | None) -> Schedule:
    return Schedule(every, Rates(nodes=1000))


def test_a_fixed_interval_is_kept() -> None:
    chosen = schedule(host=3)
    chosen.adapt({"host": Cost(100.0, 100.0, known=True)}, step_s=1.0)
    assert [step for step in range(1, 8) if due_and_saved(chosen, step)] == [3, 6]


def due_and_saved(chosen: Schedule, step: int) -> list[str]:
    due = chosen.due(step)
    chosen.saved(step, due)
    return due


def test_the_interval_follows_the_measured_cost() -> None:
    chosen = schedule(host=None)
    rate = Rates(nodes=1000).per_second("host")
    for cost_s in (0.01, 1.0, 25.0):
        chosen.adapt({"host": Cost(cost_s, cost_s, known=True)}, step_s=0.5)
        assert chosen.interval("host") == pytest.approx(sqrt(2 * cost_s / rate) / 0.5, rel=0.05)


def test_a_tier_is_not_saved_to_faster_than_it_takes_the_data() -> None:
    chosen = schedule(host=10, shared=None)
    chosen.adapt({"shared": Cost(0.0, 33.0, known=True)}, step_s=1.0)
    assert chosen.interval("shared") == 40, "33 s, in multiples of the snapshots that it is fed from"


def test_costs_drift_and_the_latest_count_most() -> None:
    cost = Cost()
    cost.learn(1.0, 2.0)
    assert (cost.blocked_s, cost.busy_s) == (1.0, 2.0)
    for _ in range(20):
        cost.learn(3.0, 4.0)
    assert cost.blocked_s == pytest.approx(3.0, abs=0.01)


def test_after_a_load_a_fixed_interval_falls_on_its_multiples_again() -> None:
    chosen = schedule(host=4)
    chosen.restart(6)
    assert [step for step in range(7, 15) if due_and_saved(chosen, step)] == [8, 12]


def test_a_multiple_at_which_a_tier_could_not_be_saved_to_is_made_up_for_and_the_next_one_kept() -> None:
    chosen = schedule(shared=10)
    assert chosen.due(10) == ["shared"]
    assert chosen.due(13) == ["shared"], "nothing was saved at 10"
    chosen.saved(13, ["shared"])
    assert [step for step in range(14, 31) if due_and_saved(chosen, step)] == [20, 30]


def test_after_a_load_an_interval_that_is_worked_out_counts_from_the_step_that_is_back() -> None:
    chosen = schedule(host=None)
    chosen.intervals["host"] = 4
    chosen.restart(6)
    assert [step for step in range(7, 15) if due_and_saved(chosen, step)] == [10, 14]


def test_milestones_of_a_retention_are_saved_also_after_a_restart_in_between(tmp_path: Path) -> None:
    def train(until: int) -> None:
        tiers = [Shared(tmp_path, every=10, keep=Retention(last=1, every=20))]
        with Checkpointer({"model": torch.nn.Linear(2, 2)}, tiers, job=f"until {until}", signals=()) as checkpointer:
            checkpointer.load()
            while checkpointer.completed < until:
                checkpointer.step()
                checkpointer.wait()
            checkpointer.save()

    train(13)
    train(41)
    assert {20, 40} <= {step.step for step in steps(tmp_path)}
