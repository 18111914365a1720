"""Copies in memory, spare nodes and storage: exact against enumeration, and against what was published."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest

from phalanx.faults.reliability.replicas import (
    Copying,
    Mixed,
    ReplicaError,
    best_copies,
    choices,
    gemini_bound,
    lost_at_once,
    ring_survives,
    survives,
)
from phalanx.faults.reliability.spares import (
    SparesError,
    binomial_quantile,
    down_share,
    spares_for,
    standby,
    standby_for,
)
from phalanx.faults.reliability.storage import traffic


def keepers(machines: int, copies: int) -> list[set[int]]:
    """Which machines keep each shard."""
    mixed = Mixed(machines, copies)
    grouped = mixed.groups * copies
    groups = [{group * copies + each for each in range(copies)} for group in range(mixed.groups)]
    ring = [{grouped + (first + each) % mixed.ring for each in range(copies)} for first in range(mixed.ring)]
    return groups + ring


@pytest.mark.parametrize(("machines", "copies"), [(6, 2), (7, 2), (9, 3), (10, 3), (11, 3), (8, 4), (5, 5), (6, 1)])
def test_the_chance_to_survive_is_that_of_all_ways_to_lose_machines(machines: int, copies: int) -> None:
    kept_by = keepers(machines, copies)
    for lost in range(machines + 1):
        ways = [set(each) for each in combinations(range(machines), lost)]
        survived = sum(not any(shard <= gone for shard in kept_by) for gone in ways)
        assert survives(machines, copies, lost) == pytest.approx(survived / comb(machines, lost)), lost


@pytest.mark.parametrize(("machines", "copies"), [(8, 2), (9, 3)])
def test_a_ring_by_enumeration(machines: int, copies: int) -> None:
    kept_by = [{(first + each) % machines for each in range(copies)} for first in range(machines)]
    for lost in range(machines + 1):
        ways = [set(each) for each in combinations(range(machines), lost)]
        survived = sum(not any(shard <= gone for shard in kept_by) for gone in ways)
        assert ring_survives(machines, copies, lost) == pytest.approx(survived / len(ways))


@pytest.mark.parametrize(
    ("machines", "copies", "lost", "bound", "exact", "ring"),
    [
        (16, 2, 2, 0.9333, 0.9333, 0.8667),
        (16, 2, 3, 0.8, 0.8, 0.6286),
        (16, 2, 4, 0.6, 0.6154, 0.3626),
        (15, 3, 3, 0.989, 0.989, 0.967),
        (15, 3, 4, 0.956, 0.956, 0.8791),
    ],
)
def test_groups_beside_geminis_bound_and_a_ring(
    machines: int, copies: int, lost: int, bound: float, exact: float, ring: float
) -> None:
    assert gemini_bound(machines, copies, lost) == pytest.approx(bound, abs=5e-5)
    assert survives(machines, copies, lost) == pytest.approx(exact, abs=5e-5)
    assert ring_survives(machines, copies, lost) == pytest.approx(ring, abs=5e-5)


def test_a_thousand_machines_with_two_copies() -> None:
    assert [round(survives(1000, 2, lost), 3) for lost in (2, 4, 8)] == [0.999, 0.994, 0.972]


def test_fewer_losses_than_copies_lose_nothing() -> None:
    assert all(survives(12_500, 3, lost) == gemini_bound(12_500, 3, lost) == 1 for lost in (0, 1, 2))


def test_copies_that_there_cannot_be_are_refused() -> None:
    with pytest.raises(ReplicaError, match="from 1 to 4"):
        survives(4, 5, 1)
    with pytest.raises(ReplicaError, match="from 0 to 4"):
        survives(4, 2, 5)


def test_chances_of_losing_several_at_once_sum_to_one() -> None:
    assert sum(lost_at_once(1e-3, 600, 12)) == pytest.approx(1)


COPYING = Copying(1250, 4.5, 500, 25, 1 / 7200, 300, 600, 200, 2000)


def test_two_copies_are_best_where_machines_fail_one_by_one() -> None:
    assert best_copies(COPYING).copies == 2


def test_bursts_ask_for_more_copies_and_little_memory_for_fewer() -> None:
    bursts = Copying(1250, 4.5, 500, 25, 1 / 7200, 300, 600, 200, 2000, burst=1.0, burst_machines=400)
    assert best_copies(bursts).copies > 2
    small = Copying(1250, 4.5, 10, 25, 1 / 7200, 300, 600, 200, 2000)
    assert best_copies(small).copies == 1
    assert [each.fits for each in choices(small)] == [True, False, False, False, False, False]


def test_the_quantile_of_a_binomial_is_the_first_that_is_enough() -> None:
    # Of 4 throws, at most 2 heads come with a chance of 11/16.
    assert binomial_quantile(4, 0.5, 11 / 16 - 1e-9) == 2
    assert binomial_quantile(4, 0.5, 11 / 16 + 1e-9) == 3
    assert binomial_quantile(1000, 0, 0.99) == 0
    assert binomial_quantile(7, 1, 0.5) == 7


def test_spares_are_enough_for_themselves_and_one_less_is_not() -> None:
    down = down_share(6.5 / 24_000, 24)
    spares = spares_for(1250, 6.5 / 24_000, 24)
    assert binomial_quantile(1250 + spares, down, 0.99) <= spares
    assert binomial_quantile(1250 + spares - 1, down, 0.99) > spares - 1


def test_byterobusts_four_warm_nodes_for_a_thousand() -> None:
    # The paper has 4 for 1,024 at P99 and does not print the chance: it follows that it is about 1.2 in 1,000.
    assert standby_for(1024, 0.0012, 1.0) == 4


def test_warm_standby_pays_where_a_restart_stops_many_gpus() -> None:
    large = standby(16_384, 8, 0.32, warm=5, requeue_s=600, warm_s=60)
    small = standby(64, 8, 0.001, warm=1, requeue_s=600, warm_s=60)
    assert large.saved_gpu_h > 0 > small.saved_gpu_h


def test_a_quantile_beyond_one_is_refused() -> None:
    with pytest.raises(SparesError, match="between 0 and 1"):
        binomial_quantile(10, 0.5, 1.0)


def test_storage_for_llama_3() -> None:
    # 405 billion parameters of 14 bytes are 5.67 TB: in 60 s that is 94.5 GB/s, and one copy more than the 3 to keep.
    found = traffic(405e9, nodes=2048, interval_s=600, write_s=60, reload_s=120, kept=3)
    assert found.checkpoint_gb == pytest.approx(5670)
    assert found.burst_gb_s == pytest.approx(94.5)
    assert found.mean_gb_s == pytest.approx(9.45)
    assert found.restore_gb_s == pytest.approx(47.25)
    assert found.capacity_tb == pytest.approx(22.68)
