"""Studies: runs in virtual time that users ask the server for."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from running import Server, eventually
from security.people import person

from phalanx.faults.taxonomy.published import PROFILES

DATA = Path(__file__).parents[1] / "data" / "traces"
LONG = "job_id,submit_s,duration_s,gpus\n" + "".join(f"{at},{at},{1 + at % 977},{1 + at % 4}\n" for at in range(50_000))
"""Far more than is run within the time of a test."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing: 4 nodes of 8 GPUs."""
    folder = tmp_path_factory.mktemp("studies")
    server = Server(folder / "data", "--backend", "rehearsal", "--nodes", "4", "--gpus", "8").start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _tidy(server: Server) -> Iterator[None]:
    yield
    for study in server.client.get("/studies").raise_for_status().json()["items"]:
        server.client.delete(f"/studies/{study['id']}").raise_for_status()
    for upload in server.client.get("/uploads").raise_for_status().json()["items"]:
        server.client.delete(f"/uploads/{upload['id']}").raise_for_status()


def uploaded(server: Server, content: bytes, name: str = "trace.csv") -> str:
    answer = server.client.post("/uploads", params={"name": name}, content=content)
    assert answer.status_code == 201, answer.text
    return f"upload:{answer.json()['id']}"


def begun(server: Server, **body: Any) -> str:
    answer = server.client.post("/studies", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def study(server: Server, name: str) -> dict[str, Any]:
    found: dict[str, Any] = server.client.get(f"/studies/{name}").raise_for_status().json()
    return found


def ended(server: Server, name: str) -> dict[str, Any]:
    eventually(lambda: study(server, name)["state"] not in ("queued", "running"))
    return study(server, name)


def answer(server: Server, **body: Any) -> dict[str, Any]:
    name = begun(server, **body)
    assert ended(server, name)["error"] == ""
    found: dict[str, Any] = server.client.get(f"/studies/{name}/answer").raise_for_status().json()
    return found


@pytest.mark.parametrize(
    "trace",
    [
        "jobs.csv",
        "philly_distilled.csv",
        "philly_log.json",
        "helios.csv",
        "openb_pods.csv",
        "pai_task_table.csv",
        "acme.csv",
        "sacct.txt",
        "tiresias_jobs.csv",
    ],
)
def test_a_trace_of_any_format_is_run_on_this_cluster(server: Server, trace: str) -> None:
    source = uploaded(server, (DATA / trace).read_bytes(), trace)
    found = answer(server, source=source, skip_bad_rows=True)
    assert (found["trace"], found["cluster"]["gpus"]) == (trace, 32)
    assert found["jobs"] > 0
    assert [row["policy"] for row in found["rows"]] == ["fifo"]


def test_policies_are_compared_with_the_best_of_each_figure_and_a_report(server: Server) -> None:
    body = {"source": "synthetic:jobs=80,load=1.2", "policies": ["fifo", "srtf", "fair"]}
    found = answer(server, **body)
    assert [row["policy"] for row in found["rows"]] == ["fifo", "srtf", "fair"]
    assert {column["key"] for column in found["columns"]} >= {"mean_jct", "allocated"}
    assert 0 < sum(row["cells"]["mean_jct"]["best"] for row in found["rows"]) < 3
    waiting = [each["waiting_gpus"] for each in found["over_time"]["series"]]
    assert len(waiting) == 3
    assert all(len(values) == 200 and max(filter(None, values)) > 0 for values in waiting)
    (kept,) = server.client.get("/studies").json()["items"]
    report = server.client.get(f"/studies/{kept['id']}/report")
    assert report.headers["content-disposition"].startswith("attachment;")
    assert "srtf" in report.text


def test_over_several_seeds_figures_have_their_margin_and_none_is_marked(server: Server) -> None:
    found = answer(server, source="synthetic:jobs=40,load=1.2", policies=["fifo", "srtf"], seeds=3)
    cells = [row["cells"]["mean_jct"] for row in found["rows"]]
    assert all(" ± " in cell["text"] and not cell["best"] for cell in cells)


def test_failures_are_drawn_by_a_profile_which_is_told_with_the_answer_and_in_the_report(server: Server) -> None:
    body = {"source": "synthetic:jobs=60,load=1.1", "policies": ["fifo"]}
    unharmed = answer(server, **body)
    found = answer(server, **body, faults="rsc-1:scale=2000,repair=1h")
    assert found["notes"][0].startswith("failures, drawn for each run: rsc-1:scale=2000,repair=1h, Meta's RSC-1")
    assert found["rows"][0]["cells"]["goodput"]["text"] < unharmed["rows"][0]["cells"]["goodput"]["text"]
    kept = server.client.get("/studies").json()["items"][0]
    assert kept["faults"] == "rsc-1:scale=2000,repair=1h"
    assert "with failures rsc-1:scale=2000,repair=1h" in server.client.get(f"/studies/{kept['id']}/report").text


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        ("/etc/passwd", "there is no profile of failures '/etc/passwd' (there is: course-10k, rsc-1,"),
        ("byterobust", "byterobust gives shares and no rate"),
        ("rsc-1:scale=-1", "scale is '-1': expected a number above 0"),
    ],
)
def test_failures_of_no_profile_are_refused_before_a_study_begins(server: Server, faults: str, told: str) -> None:
    refused = server.client.post("/studies", json={"source": "history", "faults": faults})
    assert refused.status_code == 422
    assert told in refused.json()["message"]


def test_the_profiles_that_the_form_names_have_rates() -> None:
    form = (files("phalanx.server") / "web/views/studies/compare.js").read_text()
    named = re.search(r"const PROFILES = (\[.*\]);", form)
    assert named is not None
    assert sorted(json.loads(named[1])) == sorted(each.name for each in PROFILES.values() if not each.mix)


def test_another_cluster_is_one_that_was_sent(server: Server) -> None:
    cluster = "name: twice\nnodes: [{name: big, count: 8, gpus: 8}]\npolicy: fifo\n"
    found = answer(server, source="synthetic:jobs=20,load=0.5", cluster=cluster)
    assert found["cluster"] == {"name": "twice", "nodes": 8, "gpus": 64}
    assert [row["policy"] for row in found["rows"]] == ["fifo"]


def test_the_history_of_the_server_is_run_under_another_policy(server: Server) -> None:
    refused = ended(server, begun(server, source="history"))
    assert "no job has run to its end yet" in refused["error"]
    jobs = [server.submit(gpus=8, duration="1s") for _ in range(3)]
    for job in jobs:
        server.wait(job["id"], "succeeded")
    found = answer(server, source="history", policies=["fifo", "fair"])
    assert found["jobs"] == 3
    assert found["trace"] == "history of this cluster"


def test_capacity_is_answered_in_words_with_its_curve(server: Server) -> None:
    body = {"kind": "capacity", "source": "synthetic:jobs=60,load=0.9", "targets": ["p95 queued < 2h"], "seeds": 2}
    found = answer(server, **body, load="1.2")
    (plan,) = found["plans"]
    assert plan["reached"]
    assert plan["sentences"][0].startswith(f"fifo: {plan['answer']['nodes']} nodes")
    assert [point["nodes"] for point in plan["curve"]] == sorted(point["nodes"] for point in plan["curve"])
    assert len(plan["curve"]) > 2


def test_a_target_that_cannot_be_reached_is_told_with_the_best_that_can(server: Server) -> None:
    body = {"kind": "capacity", "source": "synthetic:jobs=30,load=0.9", "targets": ["mean jct < 1s"], "seeds": 1}
    (plan,) = answer(server, **body)["plans"]
    assert not plan["reached"]
    assert plan["answer"] is None
    assert plan["best"]["nodes"] > 0
    assert "no number of nodes reaches mean jct < 1s" in plan["sentences"][0]


def test_a_study_tells_how_far_it_is_and_ends_when_it_is_cancelled(server: Server) -> None:
    name = begun(server, source=uploaded(server, LONG.encode()), policies=["fifo", "fair"])
    eventually(lambda: study(server, name)["done"] > 0)
    found = study(server, name)
    assert found["state"] == "running"
    assert found["done"] < found["total"] == 100_000
    assert "of virtual time" in found["text"]
    process = runner(name)
    assert os.getpriority(os.PRIO_PROCESS, process) >= 10
    assert server.client.get(f"/studies/{name}/answer").status_code == 409
    server.client.post(f"/studies/{name}:cancel").raise_for_status()
    assert ended(server, name)["state"] == "cancelled"
    assert not Path(f"/proc/{process}").exists()
    assert not (server.data / "studies" / "kept" / name / "trace").exists()


def test_of_one_user_one_study_runs_one_waits_and_a_third_is_refused(server: Server) -> None:
    source = uploaded(server, LONG.encode())
    first, second = begun(server, source=source), begun(server, source=source)
    eventually(lambda: study(server, first)["state"] == "running")
    third = server.client.post("/studies", json={"source": source})
    assert third.status_code == 429
    assert "wait for one of them, or cancel it" in third.json()["message"]
    assert study(server, second)["state"] == "queued"
    server.client.post(f"/studies/{second}:cancel").raise_for_status()
    assert ended(server, second)["state"] == "cancelled"
    server.client.delete(f"/studies/{first}").raise_for_status()
    assert server.client.get(f"/studies/{first}").status_code == 404
    eventually(lambda: not (server.data / "studies" / "kept" / first).exists())


def test_what_runs_when_the_server_stops_ends_and_says_so(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    name = begun(server, source=uploaded(server, LONG.encode()))
    eventually(lambda: study(server, name)["state"] == "running")
    process = runner(name)
    server.stop()
    assert not Path(f"/proc/{process}").exists()
    server.start()
    found = study(server, name)
    server.stop()
    assert found["state"] == "failed"
    assert found["error"] == "the server was stopped while it ran: begin it again"


def test_a_study_does_not_outlive_a_server_that_is_killed(folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8").start()
    name = begun(server, source=uploaded(server, LONG.encode()))
    eventually(lambda: study(server, name)["state"] == "running")
    process = runner(name)
    server.kill("studies")
    eventually(lambda: not Path(f"/proc/{process}").exists())
    eventually(lambda: study(server, name)["state"] == "failed")
    server.stop()


def test_a_process_that_is_killed_is_told_of_and_leaves_the_next_its_place(server: Server) -> None:
    name = begun(server, source=uploaded(server, LONG.encode()))
    eventually(lambda: study(server, name)["state"] == "running")
    os.kill(runner(name), signal.SIGKILL)
    found = ended(server, name)
    assert "its process was killed" in found["error"]
    assert answer(server, source="synthetic:jobs=5,load=0.5")["jobs"] == 5


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"source": "trace.csv"}, "source"),
        ({"source": "history", "policies": ["nonesuch"]}, "nonesuch"),
        ({"source": "history", "policies": ["fifo", "fifo"]}, "given twice"),
        ({"source": "history", "targets": ["p95 queued < 1h"]}, "expected targets for a study of capacity"),
        ({"source": "history", "kind": "capacity"}, "expected targets for a study of capacity"),
        ({"source": "history", "kind": "capacity", "targets": ["p95 queud < 1h"]}, "expected mean, max or p1 to p99"),
        ({"source": "history", "kind": "capacity", "targets": ["p95 queued < NaN"]}, "expected a time above 0"),
        ({"source": "history", "load": "nan"}, "expected a number such as 0.9"),
        ({"source": "history", "window": "9:1"}, "window"),
        ({"source": "history", "costs": "start=soon"}, "start=soon"),
        ({"source": "history", "placement": "best"}, "there is no placement"),
        ({"source": "history", "seeds": 1000}, "seeds"),
        ({"source": "history", "price_usd_h": -1, "kind": "capacity", "targets": ["mean jct < 1h"]}, "price_usd_h"),
    ],
)
def test_what_no_run_could_be_made_of_is_refused_at_once(server: Server, body: dict[str, Any], told: str) -> None:
    refused = server.client.post("/studies", json=body)
    assert refused.status_code == 422, refused.text
    assert told in refused.json()["message"]
    assert server.client.get("/studies").json()["items"] == []


def test_a_viewer_of_the_whole_cluster_has_studies_that_only_operators_see_too(server: Server) -> None:
    ada, bob = person(server, "viewer"), person(server, "viewer")
    operator, member = person(server, "operator"), person(server, "member of team")
    made = ada.client.post("/studies", json={"source": "synthetic:jobs=5,load=0.5"}).raise_for_status().json()["id"]
    assert [each["id"] for each in ada.client.get("/studies").json()["items"]] == [made]
    assert bob.client.get("/studies").json()["items"] == []
    for path in ("", "/answer", "/report"):
        assert bob.client.get(f"/studies/{made}{path}").status_code == 404
    assert bob.client.post(f"/studies/{made}:cancel").status_code == 404
    assert bob.client.delete(f"/studies/{made}").status_code == 404
    assert operator.client.get(f"/studies/{made}").status_code == 200
    assert member.client.get("/studies").status_code == 403
    assert member.client.post("/studies", json={"source": "history"}).status_code == 403


def runner(name: str) -> int:
    """The process of a study. One that has just begun is no program of its own yet."""
    eventually(lambda: _runner(name) is not None)
    found = _runner(name)
    assert found is not None, f"there is no process of {name}"
    return found


def _runner(name: str) -> int | None:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "phalanx.server.studies.run" in words and any(word.endswith(name) for word in words):
                return int(entry.name)
    return None
