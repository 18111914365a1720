"""The map of devices, frames of one number a device, legends, and single devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from running import Server

from phalanx.server.accounts.roles import Account, Grant, Role
from phalanx.server.api.overview.board import Board
from phalanx.server.api.overview.frames import Painter
from phalanx.server.figures.outlook import Load, Outlook, OutlookFile, write_outlook
from phalanx.server.store.devices import Changes, Holder, NodeDevices, Place
from phalanx.server.view.devices import Device, Part

BUSY, IDLE, DRAINING, ALLOCATED, RESERVED, FAILED = 2, 0, 4, 1, 3, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("devices") / "data"
    server = Server(data, "--backend", "rehearsal", "--nodes", "3", "--gpus", "4").start().with_queues("red", "blue")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def jobs(server: Server) -> list[str]:
    """Two jobs that run: `red` has all of a node, `blue` half of one."""
    made = [
        server.submit(gpus=gpus, queue=queue, duration="10h", name=f"of {queue}")["id"]
        for queue, gpus in (("red", 4), ("blue", 2))
    ]
    for job in made:
        server.wait(job, "running")
    return made


def viewer(server: Server, queue: str) -> httpx2.Client:
    name = f"sees-{queue}"
    if server.client.post("/users", json={"name": name}).status_code == 201:
        server.client.put(f"/users/{name}/roles/{queue}", json={"role": "viewer"}).raise_for_status()
    token = server.client.post("/tokens", json={"name": "t", "user": name, "scopes": ["read"]}).json()["token"]
    return server.as_user(token)


def frame(client: httpx2.Client, colour: str, **more: object) -> list[int]:
    answer = client.get("/devices/frame", params={"colour": colour, **more})  # type: ignore[dict-item]
    assert answer.status_code == 200, answer.text
    return list(answer.content)


def test_the_map_lists_devices_in_the_order_of_frames_and_is_not_sent_twice(server: Server) -> None:
    answer = server.client.get("/devices/map")
    told = answer.json()
    assert [(node["name"], node["devices"]) for node in told["nodes"]] == [("n0", 4), ("n1", 4), ("n2", 4)]
    assert (told["devices"], told["levels"]) == (12, ["node"])
    assert answer.headers["Cache-Control"] == "private, no-cache"
    again = server.client.get("/devices/map", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    state = server.client.get("/devices/frame")
    assert state.headers["X-Map-Version"] == str(told["version"])
    assert len(state.content) == 12


def test_a_frame_tells_what_each_device_is_doing(server: Server, jobs: list[str]) -> None:
    states = frame(server.client, "state")
    assert sorted(states) == [IDLE] * 6 + [BUSY] * 6
    device = states.index(IDLE)
    node = f"n{device // 4}"
    server.client.post(f"/nodes/{node}:drain").raise_for_status()
    drained = frame(server.client, "state")
    assert drained[device] == DRAINING
    assert drained.count(BUSY) == 6, "what runs goes on"
    assert set(frame(server.client, "health")) == {0, 2}
    server.client.post(f"/nodes/{node}:undrain").raise_for_status()
    assert frame(server.client, "state") == states


def test_a_frame_is_as_new_as_what_was_answered_before(server: Server) -> None:
    before = frame(server.client, "state").count(IDLE)
    job = server.submit(gpus=1, duration="10h")["id"]
    server.wait(job, "running")
    assert frame(server.client, "state").count(IDLE) == before - 1
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    assert frame(server.client, "state").count(IDLE) == before


def test_a_legend_names_what_the_numbers_stand_for(server: Server, jobs: list[str]) -> None:
    legend = server.client.get("/devices/legend", params={"colour": "job"}).json()
    shown = server.client.get("/devices/frame", params={"colour": "job"})
    assert shown.headers["X-Legend-Version"] == str(legend["version"])
    ids = [value and value["job"] for value in legend["values"]]
    counts = {ids[number]: list(shown.content).count(number) for number in set(shown.content)}
    assert counts == {None: 6, jobs[0]: 4, jobs[1]: 2}
    queues = server.client.get("/devices/legend", params={"colour": "queue"}).json()["values"]
    assert queues == [None, "red", "blue"] or queues == [None, "blue", "red"]
    wide = server.client.get("/devices/frame", params={"colour": "job", "width": 2}).content
    assert list(wide[::2]) == list(shown.content)


def test_what_a_viewer_may_not_look_at_is_others(server: Server, jobs: list[str]) -> None:
    red = viewer(server, "red")
    legend = red.get("/devices/legend", params={"colour": "job"}).json()
    assert [value["job"] for value in legend["values"][1:-1]] == [jobs[0]]
    assert legend["values"][-1] == {"others": True}
    assert "blue" not in red.get("/devices/legend", params={"colour": "queue"}).text
    numbers = frame(red, "queue")
    assert (numbers.count(1), numbers.count(2)) == (4, 2)
    assert frame(red, "state") == frame(server.client, "state")
    theirs = frame(red, "job").index(2)
    device = red.get(f"/devices/n{theirs // 4}/{theirs % 4}").json()
    assert (device["state"], device["jobs"], device["other_jobs"]) == ("busy", [], 1)


def test_a_device_tells_of_its_job(server: Server, jobs: list[str]) -> None:
    number = frame(server.client, "state").index(BUSY)
    device = server.client.get(f"/devices/n{number // 4}/{number % 4}").json()
    assert device["jobs"][0]["id"] in jobs
    assert (device["number"], device["state"], device["health"]) == (number, "busy", "healthy")
    assert device["utilization"] is None, "a rehearsal measures nothing"
    assert set(frame(server.client, "utilization")) == {0, 255}
    assert set(frame(server.client, "age")) == {0, 1}


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/devices/nowhere/0", 404, "nowhere"),
        ("/devices/n0/4", 404, "4 GPUs"),
        ("/devices/n0/-1", 422, "index"),
        ("/devices/n0/x", 422, "index"),
        ("/devices/frame?colour=pink", 422, "colour"),
        ("/devices/frame?width=3", 422, "width"),
        ("/devices/legend?colour=", 422, "colour"),
    ],
)
def test_what_there_is_not_is_refused_in_one_line(server: Server, path: str, status: int, word: str) -> None:
    refused = server.client.get(path)
    assert refused.status_code == status
    assert word in refused.json()["message"]
    assert "\n" not in refused.json()["message"]


def test_another_cluster_is_another_map(server: Server, jobs: list[str]) -> None:
    before = server.client.get("/devices/map").json()
    more = b"nodes:\n  - {name: 'n{}', count: 4, gpus: 4}\n"
    applied = server.client.put("/cluster", content=more, headers={"Content-Type": "application/yaml"})
    assert applied.status_code == 200, applied.text
    after = server.client.get("/devices/map").json()
    assert (len(after["nodes"]), after["devices"]) == (4, 16)
    assert after["version"] != before["version"]
    states = frame(server.client, "state")
    assert (len(states), states.count(BUSY)) == (16, 6)


EVERYTHING = Account("ada", (Grant("", Role.VIEWER),))


def board_of(*nodes: NodeDevices, **holders: Holder) -> Board:
    board = Board()
    places = [Place(node.name, [], "H100", len(node.devices), 80.0) for node in nodes]
    board._take_in(Changes(1, 7, 7, list(nodes), holders, places))
    return board


def painted(board: Board, colour: str, outlook: Outlook | None = None, **more: object) -> list[int]:
    painter = replace(Painter(board, outlook or Outlook(), EVERYTHING, 1_000_000), **more)  # type: ignore[arg-type]
    return list(painter.paint(colour).content)  # type: ignore[arg-type]


def test_a_job_that_does_not_use_its_devices_has_them_allocated_and_not_busy() -> None:
    node = NodeDevices("n0", 0, "healthy", [Device("running", ["1"]), Device("running", ["2"]), Device()])
    board = board_of(node)
    outlook = Outlook(loads={"1": Load(0.01, 2.0), "2": Load(-1, 0.0)}, reserved={"n0": 0b100, "gone": 1})
    assert painted(board, "state", outlook) == [ALLOCATED, BUSY, RESERVED]
    assert painted(board, "utilization", outlook) == [1, 255, 0]


def test_a_device_is_as_unhealthy_as_the_worse_of_it_and_its_node() -> None:
    board = board_of(
        NodeDevices(
            "n0", 0, "healthy", [Device(health="failed"), Device("claimed", ["1"]), Device("suspended", ["1"])]
        ),
        NodeDevices("n1", 1, "failed", [Device("running", ["2"])]),
        NodeDevices("n2", 2, "suspect", [Device(), Device("allocated", ["3"])]),
    )
    assert painted(board, "state") == [FAILED, RESERVED, 6, FAILED, DRAINING, ALLOCATED]
    assert painted(board, "health") == [3, 0, 0, 3, 1, 1]


def test_devices_of_a_spare_are_reserved_and_well_but_for_those_that_are_not() -> None:
    board = board_of(NodeDevices("n0", 0, "spare", [Device(), Device(health="suspect")]))
    assert painted(board, "state") == [RESERVED, DRAINING]
    assert painted(board, "health") == [4, 1]


def test_more_jobs_than_numbers_share_the_last_and_two_bytes_have_room_for_all() -> None:
    devices = [Device("running", [str(number)]) for number in range(300)]
    holders = {str(number): Holder(number, f"job {number}", "q", "ada", 0) for number in range(300)}
    board = board_of(NodeDevices("n0", 0, "healthy", [*devices, Device("running", ["7"])]), **holders)
    narrow = painted(board, "job")
    assert max(narrow) == 255
    assert narrow.count(255) == 300 - 254
    assert narrow[7] != 255, "who has most is named"
    wide = Painter(board, Outlook(), EVERYTHING, 0, 2).paint("job")
    assert len(wide.content) == 602
    assert len(wide.names) == 301


def test_the_age_of_a_job_is_counted_in_classes() -> None:
    devices = [Device("running", [str(number)]) for number in range(3)]
    ages = (1_000_000 - 5_000, 1_000_000 - 700_000, None)
    holders = {str(number): Holder(number, "", "q", "", since) for number, since in enumerate(ages)}
    assert painted(board_of(NodeDevices("n0", 0, "healthy", devices), **holders), "age") == [1, 3, 1]


def test_jobs_that_are_long_gone_are_forgotten() -> None:
    board = board_of(NodeDevices("n0", 0, "healthy", [Device()]))
    for number in range(2_000):
        job = str(number)
        node = NodeDevices("n0", 0, "healthy", [Device("running", [job])])
        board._take_in(Changes(1, number, number, [node], {job: Holder(number, "", "q", "", 0)}, []))
    assert len(board.holders) < 500
    assert "1999" in board.holders


def test_an_outlook_is_read_anew_only_when_it_was_written(tmp_path: Path) -> None:
    file = OutlookFile(tmp_path)
    assert file.read() == Outlook(), "there is none yet"
    told = Outlook(5, {"1": Load(0.5, 3.0)}, {"n0": 3})
    write_outlook(tmp_path, told)
    assert file.read() == told
    assert file.read() is file.read()
    (tmp_path / "outlook.msgpack").write_bytes(b"torn")
    assert file.read() == told, "what cannot be read changes nothing"


def test_parts_of_devices_are_told_with_their_instances() -> None:
    part = Part("1", 0, "mig", 428, 40_960, "3g.40gb", 4)
    device = Device("running", ["1"], "", [part], [(4, "3g.40gb")])
    board = board_of(NodeDevices("n0", 0, "healthy", [device]))
    assert board.nodes[0].devices[0].parts == [part]


def test_a_device_is_coloured_by_the_virtual_cluster_that_uses_or_owns_it() -> None:
    holders = {job: Holder(int(job), "", queue, "ada", 0) for job, queue in (("1", "red"), ("2", "blue"))}
    devices = [Device("running", ["1"]), Device(), Device("running", ["2"]), Device()]
    board = board_of(NodeDevices("n0", 0, "healthy", devices), **holders)
    cells = {"red": {"n0": 0b0011, "gone": 1}}
    painter = Painter(board, Outlook(cells=cells), EVERYTHING, 0)
    frame = painter.paint("virtual_cluster")
    assert list(frame.content) == [3, 1, 2, 0]
    assert painter.legend("virtual_cluster", frame) == [
        None,
        {"virtual_cluster": "red", "use": "free"},
        {"virtual_cluster": "blue", "use": "opportunistic"},
        {"virtual_cluster": "red", "use": "own"},
    ]
    red = replace(painter, account=Account("eve", (Grant("red", Role.VIEWER),)))
    hidden = red.paint("virtual_cluster")
    assert list(hidden.content) == [2, 1, 3, 0]
    assert red.legend("virtual_cluster", hidden)[3] == {"others": True}
