"""The benchmark of cells, run small."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.bench.cells import cells, sharing
from phalanx.bench.cells.tenants import Work, jobs_of, tenants
from phalanx.bench.row import Row

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "benchmarks.md"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    told: list[str] = []
    found = [*cells.run(cells.QUICK, told.append), *sharing.run(sharing.QUICK, told.append)]
    assert told
    return found


def named(rows: list[Row], name: str) -> float:
    (value,) = [row["value"] for row in rows if row["name"] == name]
    assert value is not None
    return value


def test_steps_are_counted_and_timed(rows: list[Row]) -> None:
    assert named(rows, "cells: steps") == sum(steps for _, steps in cells.QUICK.sizes)
    assert named(rows, "cells: steps per second, 100 nodes") > 0


def test_nobody_waits_longer_for_sharing_by_cells(rows: list[Row]) -> None:
    assert named(rows, "sharing: mean delay, by cells / alone") == 1
    assert named(rows, "sharing: delay of the worst tenant, by cells / alone") == 1
    assert named(rows, "sharing: mean delay, by quota, spread / alone") > 1


def test_the_full_size_is_that_of_the_paper() -> None:
    owners = tenants(sharing.FULL.shrink)
    assert (len(owners), sum(owner.nodes for owner in owners) * 8, sharing.FULL.days) == (11, 2232, 60)
    assert sum(steps for _, steps in cells.FULL.sizes) == 1_000_000
    assert max(nodes for nodes, _ in cells.FULL.sizes) == 1000


def test_the_reference_explains_every_kind_of_row(rows: list[Row]) -> None:
    page = PAGE.read_text()
    kinds = {row["name"].split(",")[0] for row in rows}
    unknown = [kind for kind in sorted(kinds) if f"`{kind}" not in page and kind.split(" in ")[0][7:] not in page]
    assert [kind for kind in unknown if not kind.startswith("cells: a step on")] == []


def test_jobs_ask_for_whole_nodes_or_parts_of_one() -> None:
    assert [(member.pods, member.leaves) for member in Work("j", "t", 0, 1, 32).members] == [(4, 8)]
    assert [(member.pods, member.leaves) for member in Work("j", "t", 0, 1, 4).members] == [(1, 4)]
    small = jobs_of(tenants(9)[-1], days=5, seed=1)
    assert small == jobs_of(tenants(9)[-1], days=5, seed=1)
    assert max(job.gpus for job in small) <= 8
