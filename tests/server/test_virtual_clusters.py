"""Virtual clusters live: what each owns, uses and borrows is shown, also from one configuration to another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

LAB = Path(__file__).parents[2] / "labs" / "lab05-hived"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Server]:
    two = str(LAB / "config-two-vcs.yaml")
    server = Server(tmp_path / "data", "--backend", "rehearsal", "--cluster", two).start()
    yield server
    server.stop()


def owners(server: Server) -> dict[str, Any]:
    items = server.client.get("/queues").raise_for_status().json()["items"]
    return {item["name"]: item["virtual_cluster"] for item in items}


def figures(owner: dict[str, Any]) -> tuple[int, int, int, int]:
    return owner["gpus"], owner["gpus_used"], owner["gpus_free"], owner["gpus_opportunistic"]


def test_every_virtual_cluster_is_shown_with_its_cells_before_it_has_a_job(lab: Server) -> None:
    assert owners(lab)["vc1"]["cells"] == [{"type": "GPU-D-NODE", "gpus": 1, "count": 1, "free": 1}]
    assert figures(owners(lab)["default"]) == (1, 0, 1, 0)


def test_what_a_job_has_of_its_own_cells_and_of_those_of_others_is_told_apart(lab: Server) -> None:
    lab.wait(lab.submit(queue="vc1", gpus=1, duration="1h")["id"], "running")
    borrower = lab.submit(queue="vc1", gpus=1, priority=-1, duration="1h", grace="0s")
    lab.wait(borrower["id"], "running")
    assert figures(owners(lab)["vc1"]) == (1, 1, 0, 1)
    metrics = lab.client.get(f"{lab.url}/metrics").text
    assert 'phalanx_virtual_cluster_gpus_opportunistic{virtual_cluster="vc1"} 1.0' in metrics
    assert owners(lab)["vc1"]["cells"][0]["free"] == 0
    assert figures(owners(lab)["default"]) == (1, 0, 1, 0)
    lab.wait(lab.submit(queue="default", gpus=1, duration="1h")["id"], "running")
    assert figures(owners(lab)["default"]) == (1, 1, 0, 0)
    assert figures(owners(lab)["vc1"]) == (1, 1, 0, 0)


def test_another_configuration_shows_what_becomes_of_each_virtual_cluster(lab: Server) -> None:
    one = (LAB / "config-one-vc.yaml").read_text()
    shown = lab.client.put("/cluster", content=one, headers=YAML, params={"dry_run": "true"}).json()["changes"]
    assert "Virtual clusters removed: vc1" in shown
    assert "virtual cluster default: 1 GPU-C-NODE becomes 2 GPU-NODE" in shown
    lab.client.put("/cluster", content=one, headers=YAML).raise_for_status()
    eventually(lambda: list(owners(lab)) == ["default"])
    assert figures(owners(lab)["default"]) == (2, 0, 2, 0)


def test_what_is_told_of_virtual_clusters_survives_a_crash(lab: Server) -> None:
    lab.wait(lab.submit(queue="vc1", gpus=1, duration="1h")["id"], "running")
    before = owners(lab)
    lab.kill()
    lab.start()
    assert owners(lab) == before


def test_the_map_shows_which_devices_the_cells_of_a_virtual_cluster_are_bound_to(lab: Server) -> None:
    assert lab.client.get("/devices/map").json()["virtual_clusters"] is True
    lab.wait(lab.submit(queue="vc1", gpus=1, duration="1h")["id"], "running")

    def legend() -> list[Any]:
        return list(lab.client.get("/devices/legend", params={"colour": "virtual_cluster"}).json()["values"])

    eventually(lambda: {"virtual_cluster": "vc1", "use": "own"} in legend())
