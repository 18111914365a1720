"""GPUs that an operator, or a check of the node, takes out of service alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import httpx2
import pytest
from running import Server

from phalanx.cli.exit import Exit
from phalanx.cli.main import cli, run

DCGM = Path(__file__).parent.parent / "unit" / "data" / "signals" / "dcgm.prom"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("gpus") / "data"
    server = Server(data, "--backend", "rehearsal", "--nodes", "2", "--gpus", "8").start()
    yield server
    server.stop()


@pytest.fixture
def signed_in(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PHALANX_ADDR", server.url)
    monkeypatch.setenv("PHALANX_TOKEN", server.client.headers["Authorization"].removeprefix("Bearer "))
    monkeypatch.setenv("PHALANX_CONFIG", str(tmp_path / "config.yaml"))


def node(server: Server, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = server.client.get(f"/nodes/{name}").json()
    return answer


@pytest.mark.usefixtures("signed_in")
def test_a_gpu_is_drained_alone_and_the_rest_of_its_node_takes_work(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["drain", "n0", "--gpu", "3", "--reason", "loose riser"]) == Exit.OK
    assert "n0: healthy, GPU 3 draining" in capsys.readouterr().err
    assert node(server, "n0")["gpus_out"] == [{"gpu": 3, "health": "draining"}]
    assert run(cli, ["nodes"]) == Exit.OK
    shown = capsys.readouterr().out
    assert "3 draining" in shown
    assert "GPU 3 draining: loose riser" in shown
    assert run(cli, ["drain", "n0", "--gpu", "5"]) == Exit.OK
    assert run(cli, ["undrain", "n0", "--gpu", "5"]) == Exit.OK
    assert node(server, "n0")["reason"] == "GPU 3 draining: loose riser"
    assert run(cli, ["undrain", "n0", "--gpu", "3"]) == Exit.OK
    assert (node(server, "n0")["gpus_out"], node(server, "n0")["reason"]) == ([], "")


@pytest.mark.usefixtures("signed_in")
def test_a_check_that_fails_drains_the_gpus_that_are_to_blame(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["health", "run", "--only", "dcgm", "--dcgm", str(DCGM), "--drain", "n1"]
    assert run(cli, asked) == Exit.ERROR
    assert "n1: healthy, GPU 2 draining, GPU 3 draining, GPU 5 draining" in capsys.readouterr().err
    assert "dcgm: GPU 2: 97 °C" in node(server, "n1")["reason"]
    job = server.submit(gpus=8, duration="10h")["id"]
    server.wait(job, "running")
    assert server.client.get(f"/jobs/{job}").json()["nodes"] == ["n0"]
    blocked = server.submit(gpus=6, duration="10h")["id"]
    said = server.client.get(f"/jobs/{blocked}/why").json()
    assert said["evidence"]["not_healthy"] == "n1 (GPUs 2, 3, 5 draining)"
    assert "if n1 were healthy" in said["ways"]


@pytest.mark.usefixtures("signed_in")
def test_a_check_whose_fault_is_the_nodes_drains_the_node(server: Server, tmp_path: Path) -> None:
    asked = ["health", "run", "--only", "disk", "--disk", str(tmp_path / "gone"), "--drain", "n0"]
    assert run(cli, [*asked, "--drain-max", "1"]) == Exit.ERROR
    assert (node(server, "n0")["health"], node(server, "n0")["gpus_out"]) == ("draining", [])
    assert run(cli, ["undrain", "n0"]) == Exit.OK


@pytest.mark.usefixtures("signed_in")
def test_checks_do_not_empty_the_site(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = ["health", "run", "--only", "disk", "--disk", str(tmp_path / "gone"), "--drain"]
    for name in ("n0", "n1"):
        server.client.post(f"/nodes/{name}:undrain", json={"gpus": list(range(8))}).raise_for_status()
    assert run(cli, [*failing, "n0"]) == Exit.ERROR
    assert node(server, "n0")["health"] == "draining", "one may be out in any case"
    assert run(cli, [*failing, "n1"]) == Exit.REFUSED
    assert "1 of 2 nodes are out of service already, and checks may have 1 be so" in capsys.readouterr().err
    assert node(server, "n1")["health"] == "healthy"
    assert run(cli, [*failing, "n0"]) == Exit.ERROR, "it is out already"
    assert run(cli, ["drain", "n1"]) == Exit.OK, "by hand there is no bound"
    assert run(cli, ["undrain", "n0", "n1"]) == Exit.OK


@pytest.mark.parametrize("share", [0, -1, 1.5, "all"])
def test_a_share_of_the_nodes_that_cannot_be_changes_nothing(server: Server, share: object) -> None:
    assert server.client.post("/nodes/n0:drain", json={"share_max": share}).status_code == 422
    assert node(server, "n0")["health"] == "healthy"


def test_of_the_gpus_of_one_request_all_are_out_or_none_after_a_kill(tmp_path: Path) -> None:
    data, found = tmp_path / "data", []
    for delay_ms in (0, 1, 2, 4, 8):
        server = Server(data, "--backend", "rehearsal", "--nodes", "1", "--gpus", "64").start()
        out = len(node(server, "n0")["gpus_out"])
        found.append(out)
        verb = "drain" if out == 0 else "undrain"
        asking = Thread(target=_ask, args=(server, verb))
        asking.start()
        sleep(delay_ms / 1000)
        server.kill()
        asking.join()
    server = Server(data, "--backend", "rehearsal", "--nodes", "1", "--gpus", "64").start()
    found.append(len(node(server, "n0")["gpus_out"]))
    server.stop()
    assert set(found) <= {0, 64}, found


def _ask(server: Server, verb: str) -> None:
    with suppress(httpx2.HTTPError):
        server.client.post(f"/nodes/n0:{verb}", json={"gpus": list(range(64))})


@pytest.mark.usefixtures("signed_in")
def test_a_source_that_does_not_answer_drains_nothing(server: Server) -> None:
    asked = ["health", "run", "--only", "dcgm", "--dcgm", "http://127.0.0.1:1/metrics", "--drain", "n0"]
    assert run(cli, asked) == Exit.ERROR
    assert (node(server, "n0")["health"], node(server, "n0")["gpus_out"]) == ("healthy", [])


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"gpus": [8]}, 422, "node n0 has devices 0 to 7, not 8"),
        ({"gpus": [1, 99]}, 422, "node n0 has devices 0 to 7, not 99"),
        ({"gpus": [-1]}, 422, "greater than or equal to 0"),
        ({"gpus": ["3"]}, 422, "integer"),
        ({"gpus": [0] * 5_000}, 422, "at most"),
    ],
)
def test_a_gpu_that_the_node_does_not_have_changes_nothing(
    server: Server, body: dict[str, Any], status: int, told: str
) -> None:
    answer = server.client.post("/nodes/n0:drain", json=body)
    assert (answer.status_code, told in answer.text) == (status, True), answer.text
    assert node(server, "n0")["gpus_out"] == []


def test_only_an_operator_of_the_whole_cluster_may_drain_a_gpu(server: Server) -> None:
    server.client.post("/users", json={"name": "ann"}).raise_for_status()
    server.client.put("/users/ann/roles/default", json={"role": "operator"}).raise_for_status()
    token = server.client.post("/tokens", json={"name": "t", "user": "ann", "scopes": ["write"]}).json()["token"]
    answer = server.as_user(token).post("/nodes/n0:drain", json={"gpus": [0]})
    assert answer.status_code == 403
    assert node(server, "n0")["gpus_out"] == []
