"""Real GPUs, none, and simulated ones: what `up` starts with, and how it is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from running import Server, make_passable

from fake_nvml import write_nvml
from phalanx.cli.templates import template

NO_LIBRARY, MISMATCH = 12, 18


def up_refused(data: Path, *options: str, **environment: str) -> str:
    """What `up` says that does not start."""
    make_passable(data)
    command = [sys.executable, "-m", "phalanx", "up", "--data", str(data), "--listen", "127.0.0.1:0", *options]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (1, 2), done
    return done.stderr


def test_a_machine_without_gpus_is_a_node_of_cpus_and_not_simulated(folder: Path, tmp_path: Path) -> None:
    nvml = write_nvml(tmp_path / "nvml", init_error=NO_LIBRARY)
    server = Server(folder, PYTHONPATH=nvml).start()
    [node] = server.client.get("/nodes").json()["items"]
    cluster = server.client.get("/cluster").json()
    job = server.submit(gpus=1)
    assert (node["name"], node["gpus"], node["simulated"]) == (socket.gethostname(), 0, False)
    assert (cluster["nodes"], cluster["gpus"], cluster["simulated_nodes"]) == (1, 0, 0)
    assert job["reason"] == "never_fits"
    hello = server.submit(**yaml.safe_load(template("hello").text))
    assert server.wait(hello["id"], "succeeded")
    assert f"Hello from {socket.gethostname()}, device none" in server.client.get(f"/jobs/{hello['id']}/logs").text
    server.stop()


def test_up_says_that_there_are_no_gpus(folder: Path, tmp_path: Path) -> None:
    nvml = write_nvml(tmp_path / "nvml", init_error=NO_LIBRARY)
    make_passable(folder)
    command = [sys.executable, "-m", "phalanx", "up", "--data", str(folder), "--listen", "127.0.0.1:0"]
    around = {**os.environ, "PYTHONPATH": nvml}
    with subprocess.Popen(command, env=around, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        told = []
        for line in up.stdout:
            told.append(line)
            if "Ctrl-C" in line:
                break
        up.terminate()
    assert "No GPUs: jobs get CPUs and memory only." in "".join(told)


def test_simulated_nodes_are_told_of_in_rest_and_by_up(folder: Path, tmp_path: Path) -> None:
    nvml = write_nvml(tmp_path / "nvml", gpus=4)
    server = Server(folder, "--simulate", "--nodes", "2", "--gpus", "3", PYTHONPATH=nvml).start()
    nodes = server.client.get("/nodes").json()["items"]
    assert [(node["name"], node["gpus"], node["simulated"]) for node in nodes] == [("n0", 3, True), ("n1", 3, True)]
    assert server.client.get("/nodes/n1").json()["simulated"]
    assert server.client.get("/cluster").json()["simulated_nodes"] == 2
    assert server.client.get("/backends").json()["items"][0]["real_nodes"] == []
    server.stop()
    assert (folder / "run" / "simulated").read_text() == "2"


def test_nodes_are_not_laid_over_real_gpus(folder: Path, tmp_path: Path) -> None:
    nvml = write_nvml(tmp_path / "nvml", gpus=4)
    told = up_refused(folder, "--nodes", "2", "--gpus", "4", PYTHONPATH=nvml)
    assert "--nodes 2 --gpus 4: this machine has 4 GPUs" in told
    assert "add --simulate" in told


@pytest.mark.parametrize("options", [(), ("--nodes", "2")])
def test_a_broken_driver_keeps_up_from_starting_and_is_named(
    folder: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    nvml = write_nvml(tmp_path / "nvml", init_error=MISMATCH)
    told = up_refused(folder, *options, PYTHONPATH=nvml)
    assert "NVIDIA's driver cannot be used: Driver/library version mismatch" in told
    assert "--gpus 0" in told


def test_without_its_gpus_a_machine_with_a_broken_driver_serves(folder: Path, tmp_path: Path) -> None:
    nvml = write_nvml(tmp_path / "nvml", init_error=MISMATCH)
    server = Server(folder, "--gpus", "0", PYTHONPATH=nvml).start()
    assert server.wait(server.submit()["id"], "succeeded")
    server.stop()


def test_a_cluster_file_and_simulated_nodes_exclude_each_other(folder: Path) -> None:
    told = up_refused(folder, "--cluster", "cluster.yaml", "--simulate")
    assert "leave out --nodes, --gpus and --simulate" in told


def test_up_prints_a_banner_for_simulated_nodes_and_none_for_a_machine(folder: Path, tmp_path: Path) -> None:
    for number, (options, banner) in enumerate(((("--simulate",), True), (("--gpus", "0"), False))):
        server = Server(folder.with_name(f"data-{number}"), *options, "-o", "table")
        server.begin()
        text = server.ready_text()
        assert ("SIMULATED: 2 nodes are simulated" in text) is banner
        assert "phx_" not in text, "a pipe may lead to a log: the token is in its file alone"
        server.stop()
