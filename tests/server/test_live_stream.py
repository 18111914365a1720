"""The live stream of events: bounded pieces whatever happens, and a gap where a client was too long away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import Server
from sqlalchemy import Connection

from phalanx.server.accounts.roles import Account, Grant, Role
from phalanx.server.api.streams.live import BEHIND_MAX, JOBS_MAX, WHOLE_MAX, next_piece
from phalanx.server.api.streams.new_figures import NewFigures
from phalanx.server.figures.series import FILE, STEP_MS, SeriesWriter
from phalanx.server.store.database import open_database
from phalanx.server.store.tables import jobs, journal

EVERYTHING = Account("ada", (Grant("", Role.VIEWER),))
RED = Account("rosa", (Grant("red", Role.VIEWER),))


def events_of(content: bytes) -> list[dict[str, Any]]:
    found = []
    for block in content.decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.splitlines() if line and not line.startswith(":")]
        event = {key: value for key, _, value in lines}
        if "data" in event:
            found.append({**event, "data": json.loads(event["data"])})
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Connection]:
    database = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    with database.writing() as connection:
        yield connection
    database.close()


def write(store: Connection, count: int, per_job: int = 1, queue: str = "red") -> None:
    """Writes records of progress, and the jobs that they are about."""
    ids = [str(number) for number in range(-(-count // per_job))]
    empty = {column.name: 0 for column in jobs.columns}
    rows = [{**empty, "number": int(job), "id": job, "queue": queue} for job in ids]
    store.execute(jobs.insert(), rows)
    body = {"type": "Progress", "attempt": 1}
    store.execute(
        journal.insert(),
        [
            {
                "seq": seq,
                "now_ms": seq,
                "type": "Progress",
                "job": ids[seq // per_job],
                "line": json.dumps({"body": {**body, "job": ids[seq // per_job]}}).encode(),
            }
            for seq in range(count)
        ],
    )


def test_a_few_records_come_whole(store: Connection) -> None:
    write(store, WHOLE_MAX)
    piece = next_piece(store, -1, EVERYTHING)
    assert piece is not None
    assert [event["event"] for event in events_of(piece.content)] == ["Progress"] * WHOLE_MAX
    assert piece.seq == WHOLE_MAX - 1
    assert next_piece(store, piece.seq, EVERYTHING) is None


def test_many_records_come_as_one_event_that_names_their_jobs(store: Connection) -> None:
    write(store, 600, per_job=200)
    piece = next_piece(store, -1, EVERYTHING)
    assert piece is not None
    (event,) = events_of(piece.content)
    assert (event["id"], event["event"]) == ("599", "changes")
    assert event["data"] == {
        "seq": 599,
        "from_seq": -1,
        "types": {"Progress": 600},
        "jobs": ["0", "1", "2"],
        "more": False,
    }


def test_an_event_names_a_bounded_number_of_jobs_and_says_so(store: Connection) -> None:
    write(store, 5_000)
    piece = next_piece(store, -1, EVERYTHING)
    assert piece is not None
    (event,) = events_of(piece.content)
    assert (len(event["data"]["jobs"]), event["data"]["more"]) == (JOBS_MAX, True)
    assert len(piece.content) < 10_000


def test_whoever_is_too_far_behind_or_ahead_is_told_of_a_gap(store: Connection) -> None:
    write(store, BEHIND_MAX + 1, per_job=100)
    for seq in (-1, BEHIND_MAX + 500):
        piece = next_piece(store, seq, EVERYTHING)
        assert piece is not None
        (event,) = events_of(piece.content)
        assert (event["event"], event["data"]) == ("gap", {"seq": BEHIND_MAX, "from_seq": seq})
        assert piece.seq == BEHIND_MAX
    within = next_piece(store, 0, EVERYTHING)
    assert within is not None
    assert events_of(within.content)[0]["event"] == "changes"


def test_what_an_account_may_not_see_is_not_told_of(store: Connection) -> None:
    write(store, 100, queue="blue")
    piece = next_piece(store, -1, RED)
    assert piece is not None
    assert (piece.seq, piece.content) == (99, b"")
    few = next_piece(store, 90, RED)
    assert few is not None
    assert (few.seq, few.content) == (99, b"")


def read_until(response: httpx2.Response, name: str) -> dict[str, Any]:
    """The first event of a name."""
    received = b""
    for piece in response.iter_bytes():
        received += piece
        for event in events_of(received[: received.rfind(b"\n\n") + 2]):
            if event["event"] == name:
                return event
    raise AssertionError(f"the stream ended without {name}")


def test_a_live_stream_tells_of_a_burst_in_few_pieces_and_goes_on_where_it_broke(rehearsal: Server) -> None:
    heard: list[dict[str, Any]] = []
    ready = threading.Event()

    def listen() -> None:
        with rehearsal.client.stream("GET", "/events", params={"live": "true"}) as response:
            ready.set()
            heard.append(read_until(response, "changes"))

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait(30)
    batch = {"jobs": [{"command": "true", "gpus": 1, "begin": "+10h", "name": f"burst-{i}"} for i in range(200)]}
    ids = rehearsal.client.post("/jobs:batch", json=batch).raise_for_status().json()["ids"]
    listener.join(60)
    assert heard[0]["data"]["types"]["JobSubmitted"] == 200
    assert set(ids) <= set(heard[0]["data"]["jobs"])
    before = {"Last-Event-ID": str(int(heard[0]["id"]) - 200)}
    with rehearsal.client.stream("GET", "/events", params={"live": "true"}, headers=before) as response:
        assert response.headers["X-Accel-Buffering"] == "no"
        assert read_until(response, "changes")["data"]["from_seq"] == int(before["Last-Event-ID"])
    beyond = {"Last-Event-ID": str(1 << 40)}
    with rehearsal.client.stream("GET", "/events", params={"live": "true"}, headers=beyond) as response:
        assert read_until(response, "gap")["data"]["from_seq"] == 1 << 40
    for job in ids:
        rehearsal.client.post(f"/jobs/{job}:cancel")


def test_a_live_stream_tells_when_there_are_new_figures(rehearsal: Server) -> None:
    with rehearsal.client.stream("GET", "/events", params={"live": "true"}, timeout=60) as response:
        event = read_until(response, "figures")
    assert "id" not in event


def test_figures_are_new_once(tmp_path: Path) -> None:
    figures = NewFigures(tmp_path)
    assert not figures.are_there()
    writer = SeriesWriter(tmp_path / FILE)
    assert figures.are_there()
    assert not figures.are_there()
    writer.add([("cluster", {"gpus_total": 8.0})], 0)
    writer.add([("cluster", {"gpus_total": 8.0})], STEP_MS)
    assert figures.are_there()
    writer.close()
