"""Terms: who leads begins one, tells what its backend lacks, and goes on with what its predecessor was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import Server, eventually

from builders import World, a_job, everything
from phalanx.cluster.cluster import flat
from phalanx.engine.state.journal import Journal, decode
from phalanx.engine.turn import verify
from phalanx.protocol.event import TermBegun
from phalanx.server.store.database import open_reader, sqlite_url
from phalanx.server.store.journal import lines_after

OLD_TERM = b'{"seq":7,"now":5,"body":{"type":"TermBegun","term":3},"version":1}'


def journal_of(folder: Path) -> Journal:
    database = open_reader(sqlite_url(folder / "phalanx.db"))
    with database.reading() as connection:
        journal = Journal.read(lines_after(connection, -1))
    database.close()
    return journal


def test_every_start_begins_a_term_and_its_actions_are_of_that_term(tmp_path: Path) -> None:
    server = Server(tmp_path, "--backend", "rehearsal").start()
    first = server.submit(gpus=1, duration="10m")["id"]
    server.wait(first, "running")
    server.kill()
    server.start()
    assert server.client.get("/cluster").json()["term"] == 2
    server.client.post(f"/jobs/{first}:cancel").raise_for_status()
    server.wait(first, "cancelled")
    server.stop()
    journal = journal_of(tmp_path)
    begun = [entry.body for entry in journal.records if isinstance(entry.body, TermBegun)]
    assert [each.term for each in begun] == [2]
    terms = [action.id.term for entry in journal.records for action in getattr(entry.body, "actions", ())]
    assert terms == [1, 2]
    assert verify(journal).term == 2


def test_a_term_of_an_older_release_leaves_what_the_backend_lacks_as_it_is() -> None:
    assert decode(OLD_TERM).body == TermBegun(3)
    world = World(flat(1, 8))
    world.turn(TermBegun(2, ("mig",)))
    world.turn(TermBegun(3))
    assert world.state.lacks == ("mig",)


def test_what_the_backend_lacks_by_now_is_planned_without() -> None:
    world = World(flat(1, 8))
    world.run(a_job("e", 1, (1, 4)))
    world.turn(TermBegun(2, ("resize",)))
    assert not world.state.elastic
    world.turn(TermBegun(3, ()))
    assert list(world.state.elastic) == ["e/1"]
    assert everything(verify(world.journal)) == everything(world.state)


def test_a_checkpoint_that_was_asked_for_is_told_after_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path, "--simulate", "--nodes", "1", "--gpus", "2").start()
    script = 'echo "$PHALANX_PROGRESS_TOKEN" > token; sleep 600'
    job = server.submit(gpus=1, command=["sh", "-c", script], grace="1s")["id"]
    server.wait(job, "running")
    token = eventually(lambda: [p.read_text().strip() for p in tmp_path.rglob("token") if p.read_text().endswith("\n")])
    until = server.client.post(f"/jobs/{job}:checkpoint", json={"within_s": 300}).json()["until_ms"]
    server.kill()
    server.start()
    told = server.as_user(token[0]).post(f"/jobs/{job}/progress", json={"step": 1})
    assert told.json()["checkpoint_until_ms"] == until
    server.client.post(f"/jobs/{job}:cancel").raise_for_status()
    server.wait(job, "cancelled")
    server.stop()


COPY = """
import os, sys, time
from phalanx.mortal import fork_mortal
child = fork_mortal()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""


def test_a_copy_ends_with_the_process_it_was_made_from() -> None:
    original = subprocess.Popen([sys.executable, "-c", COPY], stdout=subprocess.PIPE, text=True)
    assert original.stdout is not None
    copy = int(original.stdout.readline())
    original.kill()
    original.wait()
    original.stdout.close()

    def gone() -> bool:
        try:
            os.kill(copy, 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{copy}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    eventually(gone)


@pytest.mark.needs("highspy")
def test_a_policy_that_asks_a_solver_is_advised(tmp_path: Path) -> None:
    server = Server(tmp_path, "--backend", "rehearsal", "--policy", "gavel").start()
    job = server.submit(gpus=1, duration="1s")["id"]
    server.wait(job, "succeeded")
    server.stop()
    kinds = [type(entry.body).__name__ for entry in journal_of(tmp_path).records]
    assert "Advice" in kinds
    assert len(kinds) < 100, "it is asked when it is time, and not again and again"
