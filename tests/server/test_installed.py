"""Policies of installed packages on a server: named at its start, named later, and there again after a restart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from running import Server, eventually

NEWEST = """from phalanx.policy.policy import Policy
Newest = Policy('newest', order=lambda job, at: (-job.number,))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages, one of which offers the policy newest, and one that cannot be loaded."""
    packages = tmp_path / "packages"
    info = packages / "newest_policies-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "newest_policies.py").write_text(NEWEST)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: newest-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[phalanx.policies]\nnewest = newest_policies:Newest\n"
        "broken = no_such_package:Policy\nfifo = newest_policies:Newest\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH")))))
    return packages


@pytest.mark.usefixtures("installed")
def test_a_server_decides_by_a_policy_that_an_installed_package_offers(folder: Path) -> None:
    options = ("--backend", "rehearsal", "--nodes", "1", "--gpus", "8", "--policy", "newest")
    server = Server(folder, *options).start()
    assert server.client.get("/policy").json()["policy"] == "newest"
    first = server.submit(gpus=8, duration="1h", preemptible=False)
    server.wait(first["id"], "running")
    old, new = (server.submit(gpus=8, duration="1h") for _ in range(2))
    server.client.post(f"/jobs/{first['id']}:cancel").raise_for_status()
    server.wait(new["id"], "running")
    assert server.job(old["id"])["state"] == "waiting"
    assert server.client.get(f"/jobs/{old['id']}/why").raise_for_status().json()["reason"] == "gpus"
    server.kill()
    again = Server(folder, *options).start()
    assert again.client.get("/policy").json()["policy"] == "newest"
    assert again.job(new["id"])["state"] in ("starting", "running")
    again.stop()


@pytest.mark.usefixtures("installed")
def test_such_a_policy_can_be_changed_to_and_one_that_cannot_be_loaded_is_refused(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    server.client.put("/policy", json={"policy": "newest"}).raise_for_status()
    eventually(lambda: server.client.get("/policy").json()["policy"] == "newest")
    what_if = server.client.post("/what-if", json={"policy": "newest"})
    assert what_if.raise_for_status().json()["changed"]["policy"] == "newest"
    refused = server.client.put("/policy", json={"policy": "broken"})
    assert refused.status_code == 422
    assert "broken" in refused.json()["message"]
    log = (folder / "log" / "loop.log").read_text()
    assert "policy broken: no_such_package:Policy cannot be loaded" in log
    assert "the policy fifo of an installed package is not loaded" in log
    server.stop()
