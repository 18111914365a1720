"""`phalanx bench kubernetes` in its small form, on an API server of its own with nodes that kwok runs."""

from __future__ import annotations

import pytest

from phalanx.backends.kubernetes.attempts import LOGS_S
from phalanx.bench.engines import likeness
from phalanx.bench.kubernetes import flood, run
from phalanx.bench.kubernetes.bindings import watching
from phalanx.bench.kubernetes.contender import OURS, scheduling
from phalanx.bench.kubernetes.kwok import held
from phalanx.bench.kubernetes.objects import GROUPS, PODS, create, group, pod

pytestmark = [pytest.mark.needs("kubernetes"), pytest.mark.needs("kwok")]


def test_all_pods_run_on_nodes_whose_leases_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "contenders", lambda plane: (OURS,))
    found = {row["name"].rpartition(", ")[2]: row["value"] for row in flood.flood(True, print)}
    created, bound, ran = (found[f"until the last {what}"] for what in ("was created", "was bound", "ran"))
    assert None not in (created, bound, ran)
    assert 0 < (bound or 0.0) <= (ran or 0.0)
    assert found["nodes whose lease ran out"] == 0


def test_the_rates_are_of_nodes_whose_leases_are_renewed_and_whose_pods_run() -> None:
    with run.running(run.QUICK.nodes) as (plane, api), watching(api) as bindings, scheduling(plane, OURS):
        create(api, GROUPS, [group("g", run.GANG)])
        create(api, PODS, (pod(f"g-{i}", 1, OURS.scheduler, "g") for i in range(run.GANG)))
        assert bindings.wait_until_run(run.GANG, run.QUICK.within_s)
        assert held(api) == run.QUICK.nodes


def test_jobs_of_the_mix_run_as_pods_for_the_seconds_that_they_ask() -> None:
    found = {row["name"].partition(": ")[2]: row["value"] for row in likeness.run("kubernetes", 4, print)}
    assert found["jobs that did not succeed, of 4"] == 0
    assert found["replays of the live journal that differ"] == 0
    late = found["mean delay of an end"]
    assert late is not None
    # Where the prints of its pods could not be read, every end would wait for them.
    assert -0.5 < late < LOGS_S
