"""Live reconfiguration: the difference is shown, then cluster, queues and policy change under running jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually

from phalanx.engine.fold.snapshot import load
from phalanx.server.view.lists import nodes_in, queues_in, reservations_in

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
    assert "Nodes added: n2" in shown["changes"]
    assert "Nodes removed: n1" in shown["changes"]
    assert "policy: fifo becomes priority" in shown["changes"]
    other = "name: other\nlevels: [rack, node]\nnodes:\n- {count: 2, name: n, gpus: 8, rack: r}\nbandwidth: {rack: 9}\n"
    shown = put(lab, f"{other}defragment: 10m\n", dry_run="true").raise_for_status().json()
    assert "name: lab becomes other" in shown["changes"]
    assert "levels: node becomes rack/node" in shown["changes"]
    assert "the bandwidth of links changes" in shown["changes"]
    assert "defragment: never becomes 600s" in shown["changes"]
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


def test_a_queue_that_others_lie_in_has_what_these_have_and_tells_of_its_budget(lab: Server) -> None:
    text = (
        "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\n"
        "queues:\n- name: research\n  budget_gpu_hours: 100\n  queues:\n"
        "  - {name: llm, deserved: 6}\n  - {name: vision, deserved: 2}\n"
    )
    put(lab, text).raise_for_status()
    quotas = {each["name"]: each["quota"] for each in lab.client.get("/queues").json()["items"] if each["quota"]}
    assert {quota["guaranteed"]["gpus_permille"] for quota in quotas.values()} == {None}, "nobody says anything"
    jobs = [lab.submit(gpus=gpus, queue=f"research/{leaf}") for gpus, leaf in ((4, "llm"), (2, "llm"), (1, "vision"))]
    for job in jobs:
        lab.wait(job["id"], "running")

    def research() -> dict[str, Any]:
        return next(each for each in lab.client.get("/queues").json()["items"] if each["name"] == "research")

    eventually(lambda: research()["gpus_used"] == 7)
    assert (research()["running"], research()["waiting"], research()["gpus_waiting"]) == (3, 0, 0)
    assert research()["quota"]["deserved"]["gpus_permille"] == 8000
    eventually(lambda: (research()["budget_spent_gpu_ms"] or 0) > 0)
    assert research()["quota_used"] == {"gpus_permille": 7000, "cpus_milli": 0, "memory_mb": 0}
    for job in jobs:
        lab.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
        lab.wait(job["id"], "cancelled")


def test_a_snapshot_tells_of_queues_nodes_and_reservations_what_the_server_does(lab: Server) -> None:
    text = (
        "name: lab\nnodes:\n- {name: a, gpus: 8, labels: {disk: fast}}\n- {name: b, gpus: 8}\npolicy: backfill\n"
        "queues:\n- name: research\n  budget_gpu_hours: 100\n  queues:\n"
        "  - {name: llm, deserved: 6}\n  - {name: vision, deserved: 10}\n"
    )
    put(lab, text).raise_for_status()
    job = lab.submit(gpus=8, queue="research/llm", duration="1h", preemptible=False)
    lab.wait(job["id"], "running")
    waiting = lab.submit(gang=[{"replicas": 2, "gpus": 8}], queue="research/vision", duration="1h")

    def told(list_: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = lab.client.get(f"/{list_}").raise_for_status().json()["items"]
        return items

    eventually(lambda: [each["job"] for each in told("reservations")] == [waiting["id"]])
    state = load(lab.client.get("/snapshot").raise_for_status().content)
    assert reservations_in(state) == told("reservations")
    assert nodes_in(state) == [_of_the_state(each) for each in told("nodes")]
    assert _unspent(queues_in(state)) == _unspent(told("queues"))
    for each in (job, waiting):
        lab.client.post(f"/jobs/{each['id']}:cancel").raise_for_status()
        lab.wait(each["id"], "cancelled")


def _of_the_state(node: dict[str, Any]) -> dict[str, Any]:
    """A node without what only the backend knows."""
    return {key: value for key, value in node.items() if key != "simulated"}


def _unspent(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Queues without what they have spent, which grows with time: only whether there is a budget."""
    return [{**queue, "budget_spent_gpu_ms": queue["budget_spent_gpu_ms"] is not None} for queue in queues]


def test_the_storage_tiers_that_jobs_may_name_are_told(lab: Server) -> None:
    text = "name: lab\nnodes:\n- {name: a, gpus: 8, storage: {nvme: 100}}\n- {name: b, gpus: 8}\n"
    put(lab, text).raise_for_status()
    eventually(lambda: lab.client.get("/cluster").json()["storage_tiers"] == ["nvme"])


def test_what_changes_of_a_node_and_a_queue_is_told_in_the_words_of_the_file(lab: Server) -> None:
    text = (
        "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\nqueues:\n- {name: red, deserved: {gpus: %d}}\n"
    )
    put(lab, text % 8).raise_for_status()
    shown = put(lab, (text % 4).replace("b, gpus: 8", "b, gpus: 4"), dry_run="true").raise_for_status().json()
    assert "node b: gpus 8 becomes 4" in shown["changes"]
    assert "queue red: deserved gpus 8 becomes gpus 4" in shown["changes"]


def test_queues_alone_can_be_changed_and_the_rest_stays(lab: Server) -> None:
    whole = "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\nqueues:\n- {name: red}\n- {name: default}\n"
    put(lab, whole).raise_for_status()
    lab.client.put("/policy", json={"policy": "sjf"}).raise_for_status()
    job = lab.submit(gpus=8, queue="red", duration="1h")
    lab.wait(job["id"], "running")
    nodes = lab.client.get("/nodes").json()
    queues = "queues:\n- {name: red, limit: {gpus: 12}, min_run: 1m}\n- {name: default}\n- {name: green, weight: 3}\n"
    shown = put(lab, queues, dry_run="true").raise_for_status().json()
    assert shown == {
        "changes": ["Queues added: green", "queue red: limit none becomes gpus 12; min_run 0s becomes 60s"],
        "stops": [],
        "strands": [],
        "warnings": [],
    }
    assert "green" not in {queue["name"] for queue in lab.client.get("/queues").json()["items"]}
    assert put(lab, queues).raise_for_status().json() == shown
    eventually(lambda: "green" in {queue["name"] for queue in lab.client.get("/queues").json()["items"]})
    assert lab.client.get("/policy").json()["policy"] == "sjf"
    assert lab.client.get("/nodes").json() == nodes
    assert lab.job(job["id"])["state"] == "running"
    assert put(lab, queues).raise_for_status().json()["changes"] == []
    lab.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
    lab.wait(job["id"], "cancelled")
    audited = [each for each in lab.client.get("/audit").json()["items"] if each["verb"] == "change cluster"]
    assert audited[0]["detail"] == "only queues"


def test_a_limit_above_that_of_a_queue_around_it_is_taken_and_told(lab: Server) -> None:
    nodes = "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n"
    put(lab, nodes).raise_for_status()
    queues = "queues:\n- {name: red, limit: 8, queues: [{name: x, limit: 10}, {name: y, limit: 5}]}\n- {name: blue}\n"
    shown = put(lab, queues, dry_run="true").raise_for_status().json()["changes"]
    told = "queue red/x has a limit of 10 GPUs, but queue red around it one of 8, which holds"
    assert [line for line in shown if "limit" in line] == [told]


def test_a_queue_left_with_no_gpus_and_a_limit_above_the_cluster_are_warned_of_with_the_figures(lab: Server) -> None:
    put(lab, "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n").raise_for_status()
    queues = "queues:\n- {name: default}\n- {name: research, guaranteed: {gpus: 16}, limit: {gpus: 24}}\n"
    shown = put(lab, queues, dry_run="true").raise_for_status().json()
    left = "the cluster has 16, of which research is guaranteed 16"
    assert shown["warnings"] == [
        f"queue default is left with 0 GPUs, and jobs that need any are refused there: {left}",
        "queue research has a limit of 24 GPUs, but the cluster has 16 GPUs",
    ]
    fitting = queues.replace("16", "8").replace("24", "12")
    assert put(lab, fitting, dry_run="true").raise_for_status().json()["warnings"] == []


def test_the_queues_of_the_guide_are_applied_with_no_warning_and_jobs_of_each_run(lab: Server) -> None:
    put(lab, "name: lab\nnodes:\n- {count: 4, name: n, gpus: 8}\n").raise_for_status()
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "server.md").read_text()
    example = guide.partition("```yaml\nqueues:")[2].partition("```")[0]
    assert put(lab, f"queues:{example}").raise_for_status().json()["warnings"] == []
    jobs = [lab.submit(gpus=8, queue=queue) for queue in ("default", "research")]
    for job in jobs:
        lab.wait(job["id"], "running")
        lab.client.post(f"/jobs/{job['id']}:cancel").raise_for_status()
        lab.wait(job["id"], "cancelled")
    put(lab, "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\nqueues:\n- {name: default}\n")


def test_who_could_never_start_under_a_lowered_limit_is_told_before_and_by_why(lab: Server) -> None:
    nodes = "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\n"
    limited = "queues:\n- {name: red, limit: {gpus: 8}}\n- {name: default}\n"
    put(lab, nodes + limited).raise_for_status()
    first = lab.submit(gpus=8, queue="red", duration="1h")
    lab.wait(first["id"], "running")
    waiting, small = lab.submit(gpus=8, queue="red"), lab.submit(gpus=4, queue="red")
    lowered = limited.replace("gpus: 8", "gpus: 6")
    shown = put(lab, lowered, dry_run="true").raise_for_status().json()
    assert (shown["stops"], shown["strands"]) == ([], [waiting["id"]])
    over = "queue red has 8 GPUs, more than the limit of 6 GPUs: no job is stopped for that"
    assert any(line.startswith(over) for line in shown["changes"])
    put(lab, lowered).raise_for_status()
    words = "queue red could never have more than 6: its limit is 6; it can never start as it is"
    eventually(lambda: words in lab.client.get(f"/jobs/{waiting['id']}/why").json()["why"])
    assert "never" not in lab.client.get(f"/jobs/{small['id']}/why").json()["why"]
    for each in (first, waiting, small):
        lab.client.post(f"/jobs/{each['id']}:cancel").raise_for_status()
        lab.wait(each["id"], "cancelled")
    put(lab, nodes).raise_for_status()


def test_policy_and_maintenance_can_be_changed_by_a_file_of_their_own(lab: Server) -> None:
    put(lab, "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n").raise_for_status()
    assert put(lab, "policy: srtf\n").raise_for_status().json()["changes"] == ["policy: fifo becomes srtf"]
    eventually(lambda: lab.client.get("/policy").json()["policy"] == "srtf")
    window = "maintenance:\n- {name: fans, nodes: ['a*'], start: 2040-01-01T00:00Z, for: 2h}\n"
    assert put(lab, window).raise_for_status().json()["changes"] == ["Maintenance added: fans"]
    assert lab.client.get("/policy").json()["policy"] == "srtf"
    assert put(lab, "maintenance: []\n").raise_for_status().json()["changes"] == ["Maintenance removed: fans"]


@pytest.mark.parametrize("nodes", ["", "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n"])
def test_maintenance_that_is_told_from_now_on_begins_now_and_not_long_ago(lab: Server, nodes: str) -> None:
    whole = "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n"
    put(lab, whole).raise_for_status()
    window = "maintenance:\n- {name: fans, nodes: [a], start: +0s, for: 2h}\n"
    assert put(lab, nodes + window).raise_for_status().json()["changes"] == ["Maintenance added: fans"]
    eventually(lambda: [each["health"] for each in lab.client.get("/nodes").json()["items"]] == ["draining", "healthy"])
    put(lab, whole).raise_for_status()
    eventually(lambda: [each["health"] for each in lab.client.get("/nodes").json()["items"]] == ["healthy", "healthy"])


def test_of_maintenance_that_is_over_it_is_said(lab: Server) -> None:
    put(lab, "name: lab\nnodes:\n- {name: a, gpus: 8}\n- {name: b, gpus: 8}\npolicy: fifo\n").raise_for_status()
    window = "maintenance:\n- {name: fans, nodes: [a], start: 2020-01-01T00:00Z, for: 2h}\n"
    shown = put(lab, window, dry_run="true").raise_for_status().json()["changes"]
    assert shown == ["Maintenance added: fans", "Maintenance already over: fans"]


def test_maintenance_of_the_file_a_server_begins_with_counts_from_its_beginning(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    window = "maintenance:\n- {name: fans, nodes: [a], start: +0s, for: 2h}\n"
    file.write_text(f"nodes:\n- {{name: a, gpus: 8}}\n- {{name: b, gpus: 8}}\n{window}")
    server = Server(tmp_path / "data", "--backend", "rehearsal", "--cluster", str(file)).start()
    try:
        healths = [each["health"] for each in server.client.get("/nodes").json()["items"]]
        assert healths == ["draining", "healthy"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("queues:\n- {name: red, guaranteed: {gpus: 99}}\n", "cluster:2: "),
        ("queues:\n- {nam: red}\n", "cluster:2: key 'queues[0]"),
        ("queues: []\n", "expected a list of 1 to"),
        ("policy: fastest\n", "unknown policy 'fastest'"),
        ("maintenance:\n- {name: x, nodes: [nowhere], start: +1h, for: 1h}\n", "no such node or domain"),
        ("version: 1\n", "the key 'nodes' is missing"),
        ("queues: [{name: red}]\nlevels: [node]\n", "the key 'nodes' is missing"),
        ("quues: [{name: red}]\n", "did you mean 'queues'"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_place(lab: Server, text: str, told: str) -> None:
    before = lab.client.get("/cluster").json(), lab.client.get("/queues").json()
    refused = put(lab, text)
    assert refused.status_code == 422, refused.text
    assert told in refused.json()["message"]
    assert before == (lab.client.get("/cluster").json(), lab.client.get("/queues").json())


def test_the_policy_alone_can_be_changed(lab: Server) -> None:
    assert lab.client.put("/policy", json={"policy": "sjf"}).raise_for_status().json()["policy"] == "sjf"
    assert lab.client.put("/policy", json={"policy": "nonsense"}).status_code == 422
    eventually(lambda: lab.client.get("/policy").json()["policy"] == "sjf")


def test_a_policy_in_a_file_is_refused_in_words_for_people(lab: Server) -> None:
    mine = "./mine.py:Mine"
    for answer in (
        lab.client.put("/policy", json={"policy": mine}),
        lab.client.post("/what-if", json={"policy": mine}),
        put(lab, f"policy: {mine}\n"),
    ):
        assert answer.status_code == 422, answer.text
        assert "a server decides by policies that it knows by name" in answer.json()["message"]


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
