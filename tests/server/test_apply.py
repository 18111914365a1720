"""Live reconfiguration: the difference is shown, then cluster, queues and policy change under running jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

YAML = {"Content-Type": "application/yaml"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("lab")
    file = Path(folder, "cluster.yaml")
    file.write_text("name: lab\nnodes:\n- {name: n0, gpus: 8}\n- {name: n1, gpus: 8}\npolicy: fifo\n")
    server = Server(folder / "data", "--backend", "rehearsal", "--cluster", str(file)).start()
    yield server
    server.stop()


def put(server: Server, text: str, **parameters: Any) -> Any:
    return server.client.put("/cluster", content=text, headers=YAML, params=parameters)


def test_a_difference_is_shown_and_nothing_changes(lab: Server) -> None:
    text = "name: lab\nnodes:\n- {name: n0, gpus: 8}\n- {name: n2, gpus: 4}\npolicy: priority\n"
    shown = put(lab, text, dry_run="true").raise_for_status().json()
    assert "1 nodes come: n2" in shown["changes"]
    assert "1 nodes go: n1" in shown["changes"]
    assert "policy: fifo becomes priority" in shown["changes"]
    assert lab.client.get("/cluster").json()["policy"] == "fifo"
    assert [node["name"] for node in lab.client.get("/nodes").json()["items"]] == ["n0", "n1"]


def test_nodes_come_and_running_jobs_stay(lab: Server) -> None:
    job = lab.submit(gpus=8)
    lab.wait(job["id"], "running")
    waiting = lab.submit(gang=[{"replicas": 2, "gpus": 8}])
    text = "name: lab\nnodes:\n" + "".join(f"- {{name: n{i}, gpus: 8}}\n" for i in range(3)) + "policy: priority\n"
    assert put(lab, text).raise_for_status().json()["stops"] == []
    lab.wait(waiting["id"], "running")
    assert lab.job(job["id"])["attempts"] == 1
    eventually(lambda: lab.client.get("/policy").json()["policy"] == "priority")
    assert [node["name"] for node in lab.client.get("/nodes").json()["items"]] == ["n0", "n1", "n2"]
    for each in (job, waiting):
        lab.client.post(f"/jobs/{each['id']}:cancel").raise_for_status()
        lab.wait(each["id"], "cancelled")


def test_what_runs_on_a_node_that_goes_is_told_and_stopped_and_starts_elsewhere(lab: Server) -> None:
    text = "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n"
    put(lab, text).raise_for_status()
    job = lab.submit(gpus=8, grace="0s")
    node = lab.wait(job["id"], "running")["nodes"][0]
    stays = "b" if node == "a" else "a"
    smaller = f"name: lab\nnodes:\n- {{name: {stays}, gpus: 8}}\npolicy: fifo\n"
    assert put(lab, smaller, dry_run="true").json()["stops"] == [f"{job['id']}/1"]
    put(lab, smaller).raise_for_status()
    eventually(lambda: lab.job(job["id"])["nodes"] == [stays] and lab.job(job["id"])["state"] == "running")
    eventually(lambda: [node["name"] for node in lab.client.get("/nodes").json()["items"]] == [stays])
    lab.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    lab.wait(job["id"], "cancelled")


def test_a_cluster_in_which_work_could_not_go_on_is_refused(lab: Server) -> None:
    text = "name: lab\nnodes:\n- {name: a, gpus: 8, rack: r0}\n- {name: b, gpus: 8, rack: r0}\n"
    put(lab, text).raise_for_status()
    job = lab.submit(gpus=1, topology={"required": "rack"}, begin="+1h")
    refused = put(lab, "name: lab\nnodes:\n- {name: a, gpus: 8}\n")
    assert refused.status_code in (409, 422)
    assert "rack" in refused.json()["message"]
    lab.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()


def test_queues_with_quotas_are_shown_with_what_runs_in_them(lab: Server) -> None:
    text = (
        "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\n"
        "queues:\n- {name: red, deserved: {gpus: 8}}\n- {name: blue, deserved: {gpus: 8}}\n"
    )
    put(lab, text).raise_for_status()
    queues = {queue["name"]: queue for queue in lab.client.get("/queues").json()["items"]}
    assert queues["red"]["quota"]["deserved"]["gpus_permille"] == 8000
    assert lab.client.post("/jobs", json={"gpus": 1, "command": "a", "queue": "green"}).status_code == 422


def test_what_changes_of_a_node_and_a_queue_is_told_in_the_words_of_the_file(lab: Server) -> None:
    text = (
        "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\nqueues:\n- {name: red, deserved: {gpus: %d}}\n"
    )
    put(lab, text % 8).raise_for_status()
    shown = put(lab, (text % 4).replace("b, gpus: 8", "b, gpus: 4"), dry_run="true").raise_for_status().json()
    assert "node b: gpus 8 becomes 4" in shown["changes"]
    assert "queue red: deserved gpus_permille 8000 becomes gpus_permille 4000" in shown["changes"]


def test_the_policy_alone_can_be_changed(lab: Server) -> None:
    assert lab.client.put("/policy", json={"policy": "sjf"}).raise_for_status().json()["policy"] == "sjf"
    assert lab.client.put("/policy", json={"policy": "nonsense"}).status_code == 422
    eventually(lambda: lab.client.get("/policy").json()["policy"] == "sjf")


def test_a_change_survives_a_crash(lab: Server) -> None:
    lab.client.put("/policy", json={"policy": "srtf"}).raise_for_status()
    before = lab.client.get("/nodes").json()
    lab.kill()
    lab.start()
    assert lab.client.get("/policy").json()["policy"] == "srtf"
    assert lab.client.get("/nodes").json() == before


@pytest.mark.parametrize("text", ["", "nodes: []", "nodes: [{gpus: -1}]", "nonsense: 1", "nodes: [{count: 99999999}]"])
def test_a_file_that_is_no_cluster_is_refused(lab: Server, text: str) -> None:
    assert put(lab, text).status_code == 422
