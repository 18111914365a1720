"""The benchmark of policies: every policy on one trace, solvers apart."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from phalanx.bench import policies as bench
from phalanx.bench.policies import QUICK, TIMES_FIFO_MAX, Cost, measured, run
from phalanx.cluster.cluster import flat
from phalanx.policy.registry import BUILTIN, policy, split
from phalanx.simulate.studies.suite import NEEDS
from phalanx.simulate.traces.synthetic import Synthetic, synthesize


def test_every_policy_is_measured_and_only_those_with_solvers_have_no_target() -> None:
    rows = {row["name"]: row for row in run(QUICK, lambda line: None)}
    without = []
    for name in BUILTIN:
        if name == "fifo" or (name == "gavel" and find_spec("highspy") is None):
            continue
        found = rows[f"policies: an event under {name} / fifo"]
        assert found["target"] in (None, TIMES_FIFO_MAX)
        assert (f"policies: solver of {name}, calls" in rows) == (found["target"] is None)
        without += [name] * (found["target"] is None)
    assert {"gavel", *without} == {"gavel", "optimus", "pollux", "themis"}


def test_sizes_that_are_set_by_a_rule_are_part_of_what_a_policy_costs() -> None:
    cluster = flat(2, 4)
    trace = synthesize(Synthetic(30, cluster.gpus, 1.0), 1)
    assert policy("antman").sets_sizes
    assert measured(cluster, trace, "antman", patience_s=10).solver_s == 0
    assert measured(cluster, trace, "optimus", patience_s=10).solver_s > 0


def test_policies_are_measured_as_they_are_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bench, "measured", lambda cluster, trace, written, patience_s: asked.append(written) or NOTHING)
    run(QUICK, lambda line: None)
    assert [written for written in asked if ":" in written] == [NEEDS["tiresias-gittins"]]
    assert {split(written)[0] for written in asked} >= set(BUILTIN) - {"gavel"}


NOTHING = Cost(1.0, 0.0, 0, 1, whole=True)


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
