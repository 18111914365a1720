"""Regions with prices and capacity of their own, for the same job elsewhere and for spot capacity with a deadline."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run
from phalanx.compat.platforms.regions import RegionError, read_offers

HEADER = "region,instance,on_demand_usd_h,spot_usd_h,nodes\n"
REGIONS = (
    HEADER
    + """us-east-1,p5.48xlarge,56,24,4
eu-north-1,p5.48xlarge,64,16,32
ap-south-1,p5.48xlarge,48,,2
us-central1,a3-highgpu-8g,88,20,
"""
)
JOB = "name: big\ncommand: [python, train.py]\ngang: [{replicas: %d, gpus: 8, gpu_type: H100}]\n"


@pytest.fixture
def regions(tmp_path: Path) -> str:
    path = tmp_path / "regions.csv"
    path.write_text(REGIONS)
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(cli, [*arguments, "-o", "json"]) == Exit.OK
    return {row[next(iter(row))]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("nodes", "spot", "region", "usd_gpu_h"),
    [
        (2, False, "ap-south-1", 6),
        (4, False, "us-east-1", 7),
        (8, False, "eu-north-1", 8),
        (33, False, None, None),
        (2, True, "eu-north-1", 2),
    ],
)
def test_the_cheapest_region_that_has_enough_nodes_counts(
    nodes: int,
    spot: bool,
    region: str | None,
    usd_gpu_h: float | None,
    regions: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "job.yaml").write_text(JOB % nodes)
    flags = ("--spot",) if spot else ()
    found = answer(capsys, "platforms", str(tmp_path / "job.yaml"), "--regions", regions, *flags)
    assert (found["aws-batch"]["region"], found["aws-batch"]["usd_gpu_h"]) == (region, usd_gpu_h)
    assert found["vertex"]["region"] == "us-central1", "of which it is not said how many there are"


def test_skypilot_is_told_where(regions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.yaml").write_text(JOB % 8)
    arguments = ("--regions", regions, "--write", str(tmp_path), "--only", "skypilot")
    found = answer(capsys, "platforms", str(tmp_path / "job.yaml"), *arguments)
    assert yaml.safe_load(Path(found["skypilot"]["file"]).read_text())["resources"]["infra"] == "aws/eu-north-1"


def test_a_job_with_a_deadline_moves_among_regions_that_are_large_enough(
    regions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("cost", "spot", "--work", "10h", "--deadline", "20h", "--runs", "10", "--regions", regions)
    small, large = (answer(capsys, *base, "--gpus", gpus) for gpus in ("32", "256"))
    # On demand the cheapest region with spot capacity that is large enough: 56 and 64 dollars a node, 10.1 hours.
    assert small["on demand only"]["usd"] == pytest.approx(4 * 56 * 10.1)
    assert large["on demand only"]["usd"] == pytest.approx(32 * 64 * 10.1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("region,instance\nx,p5.48xlarge\n", "r.csv:1: there is no column on_demand_usd_h"),
        (HEADER, "r.csv: has no rows"),
        (HEADER + "x,p5.48xlarge,-1,,\n", "r.csv:2: on_demand_usd_h is -1: expected a price of at least 0"),
        (HEADER + "x,p5.48xlarge,nan,,\n", "r.csv:2: on_demand_usd_h is nan"),
        (HEADER + "x,p5.48xlarge,,1,\n", "r.csv:2: on_demand_usd_h is empty"),
        (HEADER + "x,p5.48xlarge,1,some,\n", "r.csv:2: spot_usd_h is some"),
        (HEADER + "x,p5.48xlarge,1,1,-2\n", "r.csv:2: nodes is -2: expected a whole number"),
        (HEADER + ",p5.48xlarge,1,1,2\n", "r.csv:2: region is empty"),
        (HEADER + "x,none.such,1,1,2\n", "r.csv:2: no instance type none.such in the catalogue"),
        (HEADER + "x,p5.48xlarge,1,1,2\nx,p5.48xlarge,2,1,2\n", "r.csv:3: p5.48xlarge in x is given in line 2 already"),
        ("region,instance,on_demand_usd_h,colour\n", "r.csv:1: there is no column colour of regions"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(RegionError, match=re.escape(told)):
        read_offers(text, "r.csv")
