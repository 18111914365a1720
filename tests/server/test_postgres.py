"""The store in PostgreSQL: the same server, with another URL."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from running import Server

pytestmark = pytest.mark.needs("postgres")


def test_jobs_run_and_survive_a_crash_in_postgres(database: str, folder: Path) -> None:
    server = Server(folder, "--backend", "rehearsal", "--nodes", "2", "--store", database).start()
    assert not (folder / "phalanx.db").exists()
    done = server.submit(gpus=1, duration="50ms", labels={"a": "b"})
    server.wait(done["id"], "succeeded")
    waits = server.submit(gpus=1, begin="+1h", name="waits")
    held = server.client.post(f"/jobs/{waits['id']}:hold").raise_for_status()
    server.kill()
    server.start()
    found = server.job("waits")
    assert (found["id"], found["reason"], found["version"]) == (waits["id"], "held", held.json()["version"])
    listed = server.client.get("/jobs", params={"label": "a=b", "state": "succeeded"}).json()["items"]
    assert [job["id"] for job in listed] == [done["id"]]
    assert server.client.get("/queues").json()["items"][0]["waiting"] == 1
    assert server.client.get(f"/jobs/{waits['id']}/why").json()["reason"] == "held"
    assert len(server.client.get("/audit").json()["items"]) == 3
    assert server.client.get(server.url + "/metrics").status_code == 200
    server.stop()


def test_tokens_end_with_the_one_they_were_made_with_in_postgres(database: str, folder: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE DATABASE tokens")
    own = database.replace("/postgres", "/tokens")
    server = Server(folder, "--backend", "rehearsal", "--nodes", "2", "--store", own).start()
    made = [server.client.post("/tokens", json={"name": "first"}).raise_for_status().json()]
    for _ in range(2):
        maker = server.as_user(made[-1]["token"])
        made.append(maker.post("/tokens", json={"name": "next"}).raise_for_status().json())
    last = server.as_user(made[-1]["token"])
    assert last.get("/me").status_code == 200
    assert server.client.delete(f"/tokens/{made[0]['id']}").json()["revoked"] == 3
    assert last.get("/me").status_code == 401
    refused = server.client.post("/login", json={"user": "a\x00b", "password": "a guess"})
    assert refused.status_code == 401
    server.stop()
