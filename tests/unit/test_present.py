"""The reason that holds now, whatever a decision said before."""

from __future__ import annotations

from builders import World, a_job
from phalanx.cluster.cluster import flat
from phalanx.engine.plan import Reason
from phalanx.engine.present import present_reason

MINUTE_MS = 60_000


def test_who_would_fit_but_is_kept_back_for_another_is_told_so_whatever_it_was_told_before() -> None:
    world = World(flat(2, 4), "backfill")
    world.run(a_job("first", 4, duration_ms=2 * MINUTE_MS))
    world.submit(a_job("large", 4, 2, duration_ms=MINUTE_MS))
    world.submit(a_job("long", 4, duration_ms=3 * MINUTE_MS))
    world.state.classes[world.job("long").shape].verdict = Reason.GPUS
    assert present_reason(world.state, "long") is Reason.RESERVED
