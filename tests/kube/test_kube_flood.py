"""`phalanx bench kubernetes --only flood` in its small form, on an API server of its own with kwok."""

from __future__ import annotations

import pytest

from phalanx.bench.kubernetes import flood
from phalanx.bench.kubernetes.contender import OURS

pytestmark = [pytest.mark.needs("kubernetes"), pytest.mark.needs("kwok")]


def test_all_pods_run_on_nodes_whose_leases_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "contenders", lambda plane: (OURS,))
    found = {row["name"].rpartition(", ")[2]: row["value"] for row in flood.flood(True, print)}
    created, bound, ran = (found[f"until the last {what}"] for what in ("was created", "was bound", "ran"))
    assert None not in (created, bound, ran)
    assert 0 < (bound or 0.0) <= (ran or 0.0)
    assert found["nodes whose lease ran out"] == 0
