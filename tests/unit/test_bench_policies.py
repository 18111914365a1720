"""The benchmark of policies: every policy on one trace, solvers apart."""

from __future__ import annotations

from phalanx.bench.policies import QUICK, TIMES_FIFO_MAX, measured, run
from phalanx.cluster.cluster import flat
from phalanx.policy.registry import BUILTIN
from phalanx.simulate.traces.synthetic import Synthetic, synthesize


def test_every_policy_is_measured_and_only_those_without_solvers_have_a_target() -> None:
    rows = {row["name"]: row for row in run(QUICK, lambda line: None)}
    for name in BUILTIN:
        if name in ("fifo", "gavel"):
            continue
        found = rows[f"policies: an event under {name} / fifo"]
        solves = f"policies: solver of {name}, calls" in rows
        assert found["target"] == (None if solves else TIMES_FIFO_MAX)
    assert "policies: solver of themis, calls" in rows


def test_the_time_of_a_solver_does_not_count_as_the_policys() -> None:
    cluster = flat(2, 4)
    trace = synthesize(Synthetic(40, cluster.gpus, 1.0), 1)
    cost = measured(cluster, trace, "themis", patience_s=10)
    assert cost.whole
    assert cost.solver_calls > 0
    assert 0 < cost.solver_s < cost.seconds


def test_patience_ends_a_run_that_takes_too_long() -> None:
    cluster = flat(2, 4)
    trace = synthesize(Synthetic(200, cluster.gpus, 1.0), 1)
    cost = measured(cluster, trace, "fifo", patience_s=0.0)
    assert not cost.whole
    assert cost.events < 200
