"""`phalanx view`: journals in whatever they were saved, and what is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from running import Server
from viewer import Viewer, simulated

from phalanx.cli import saved
from phalanx.cli.main import cli, run
from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import Record, encode
from phalanx.protocol.event import NodeHealthChanged

SECRET = "hunter2-of-ada"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a simulated run of four jobs."""
    return simulated(tmp_path_factory.mktemp("journal"))


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on which a job of a user has a variable that nobody else may see."""
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder / "data", "--backend", "rehearsal", "--simulate", "--nodes", "2", "--gpus", "8").start()
    job = server.submit(name="train", gpus=4, duration="2h", env={"TOKEN": SECRET})
    server.wait(job["id"], "running")
    yield server
    server.stop()


def jobs_of(viewer: Viewer) -> dict[str, str]:
    return {job["id"]: job["state"] for job in viewer.client.get("/jobs").raise_for_status().json()["items"]}


def test_a_journal_is_shown_and_nothing_of_it_can_be_changed(journal: Path, tmp_path: Path) -> None:
    viewer = Viewer(journal, tmp_path)
    try:
        assert jobs_of(viewer) == dict.fromkeys("1234", "succeeded")
        attempts = viewer.client.get("/jobs/3/attempts").json()["items"]
        assert [(each["started_ms"], each["outcome"]) for each in attempts] == [(7_200_000, "succeeded")]
        assert viewer.client.get("/jobs/3").json()["spec"]["user"] == "ada"
        assert viewer.client.get("/timeline").json()["now_ms"] == 10_600_000
        assert max(each or 0 for each in viewer.client.get("/series").json()["values"]["jobs_running"]) == 2
        csrf = {"X-CSRF-Token": viewer.client.get("/session").json()["csrf"]}
        for method, path in (
            ("POST", "/jobs"),
            ("POST", "/jobs/1:cancel"),
            ("PUT", "/cluster"),
            ("DELETE", "/session"),
        ):
            refused = viewer.client.request(method, path, headers=csrf)
            assert refused.status_code == 403
            assert "nothing can be changed" in refused.json()["message"]
        with httpx2.Client(base_url=viewer.url) as strange:
            assert strange.get("/api/v1/jobs").status_code == 401
            assert strange.get("/api/v1/session").json()["file"]["name"] == "", "a stranger is not told what is shown"
            assert strange.get("/ui/open/phx_0123_wrong").status_code == 404
    finally:
        assert viewer.stop() == 0
    assert [each.name for each in tmp_path.iterdir()] == ["address"], "nothing is left behind"


def test_a_bundle_and_the_data_of_a_server_that_runs_are_shown_without_values_of_variables(
    rehearsed: Server, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(rehearsed.client.get("/debug/bundle").raise_for_status().content)
    for path in (bundle, rehearsed.data):
        viewer = Viewer(path, tmp_path)
        try:
            assert jobs_of(viewer) == {"1": "running"}
            shown = viewer.client.get("/jobs/1").json()
            assert shown["spec"]["execution"]["env"] == [["TOKEN", "…"]]
            assert SECRET not in viewer.client.get("/journal").raise_for_status().text
            assert viewer.client.get("/jobs/1/why").json()["state"] == "running"
            assert viewer.client.get("/audit").status_code == 403
        finally:
            viewer.stop()
    assert [job["state"] for job in rehearsed.client.get("/jobs").json()["items"]] == ["running"]


def test_a_bundle_that_begins_at_a_state_knows_the_jobs_from_before(journal: Path, tmp_path: Path) -> None:
    from phalanx.cli.saved import state_at
    from phalanx.engine.fold.snapshot import dump

    lines = journal.read_bytes().splitlines(keepends=True)
    state = state_at(str(journal), 60_000)
    (tmp_path / "unpacked").mkdir()
    (tmp_path / "unpacked" / "start.bin").write_bytes(dump(state))
    (tmp_path / "unpacked" / "journal.jsonl").write_bytes(b"".join(lines[state.seq + 1 :]))
    viewer = Viewer(tmp_path / "unpacked", tmp_path)
    try:
        assert jobs_of(viewer) == dict.fromkeys("1234", "succeeded")
        assert viewer.client.get("/jobs/1").json()["spec"]["user"] == "ada"
    finally:
        viewer.stop()


def refused(path: Path, capfd: pytest.CaptureFixture[str]) -> str:
    assert run(cli, ["view", str(path)]) == 1
    return capfd.readouterr().err


def test_a_journal_that_was_cut_short_is_shown_up_to_its_last_whole_line(journal: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(journal.read_bytes()[:-20])
    viewer = Viewer(cut, tmp_path)
    try:
        assert jobs_of(viewer)["4"] in ("running", "stopping")
    finally:
        viewer.stop()


def test_what_is_damaged_of_a_later_version_or_something_else_is_told(
    journal: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = tmp_path / "damaged.jsonl"
    damaged.write_bytes(b"".join([*lines[:5], b'{"seq":5,"now":"noon"}\n', *lines[6:]]))
    assert "damaged.jsonl: journal line 6: " in refused(damaged, capfd)
    later = tmp_path / "later.jsonl"
    later.write_bytes(b"".join(lines).replace(b'"version":1}', b'"version":7}'))
    assert "a record of version 7; this phalanx knows up to version 1" in refused(later, capfd)
    lacking = tmp_path / "lacking.jsonl"
    lacking.write_bytes(b"".join([*lines[:5], *lines[6:]]))
    assert "record 6 cannot be folded" in refused(lacking, capfd)
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    assert "expected a journal, with a record in each line, found none" in refused(empty, capfd)
    notes = tmp_path / "notes.txt"
    notes.write_text("buy milk\n")
    assert "notes.txt: journal line 1: " in refused(notes, capfd)
    assert "expected journal.jsonl of an unpacked bundle or phalanx.db" in refused(tmp_path, capfd)
    assert "No such file" in refused(tmp_path / "absent", capfd)


def test_a_bundle_of_someone_else_and_one_that_would_fill_disk_or_memory_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "foreign.zip"
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr("photos/1.jpg", b"x")
    assert "no debug bundle: there is no journal.jsonl in it" in refused(foreign, capfd)
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snapshot.bin", b"")
        archive.writestr("journal.jsonl", bytes(3 << 20))
    monkeypatch.setattr(saved, "LINE_BYTES_MAX", 1 << 20)
    assert "journal line 1: expected at most 1,048,576 bytes in a line" in refused(bomb, capfd)
    monkeypatch.setattr(saved, "MEMBER_BYTES_MAX", 1 << 20)
    assert "journal.jsonl would be 3,145,728 bytes, of at most 1,048,576" in refused(bomb, capfd)


def test_what_has_no_end_or_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fifo, huge = tmp_path / "fifo", tmp_path / "huge.jsonl"
    os.mkfifo(fifo)
    with huge.open("wb") as file:
        file.truncate(saved.JOURNAL_BYTES_MAX + 1)
    for path, told in {
        "/dev/zero": "expected a regular file, it is a device",
        str(fifo): "expected a regular file, it is a FIFO",
        str(huge): f"expected a journal of at most {saved.JOURNAL_BYTES_MAX:,} bytes",
        str(tmp_path): "expected journal.jsonl of an unpacked bundle or phalanx.db of a server in it",
    }.items():
        assert run(cli, ["view", path]) == 1
        assert f"{path}: {told}" in capfd.readouterr().err
    assert run(cli, ["why", "1", "--state", str(tmp_path)]) == 1
    assert "expected a regular file, it is a folder" in capfd.readouterr().err


def test_what_is_ended_while_it_reads_leaves_nothing_behind(journal: Path, tmp_path: Path) -> None:
    first = journal.read_bytes().partition(b"\n")[0]
    changes = (NodeHealthChanged("n0", (Health.SUSPECT, Health.HEALTHY)[seq % 2]) for seq in range(100_000))
    lines = [first, *(encode(Record(seq, seq, change)) for seq, change in enumerate(changes, start=1))]
    (tmp_path / "long.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    folder = tmp_path / "made"
    folder.mkdir()
    command = [sys.executable, "-m", "phalanx", "view", str(tmp_path / "long.jsonl")]
    viewing = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(folder)}, stderr=subprocess.PIPE)
    while not list(folder.glob("phalanx-view-*/data/phalanx.db")) and viewing.poll() is None:
        time.sleep(0.01)
    viewing.send_signal(signal.SIGTERM)
    told = viewing.communicate(timeout=60)[1].decode()
    assert (viewing.returncode, list(folder.iterdir()), "Traceback" in told) == (128 + signal.SIGTERM, [], False), told


def test_it_listens_on_this_machine_alone(journal: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["view", str(journal), "--listen", "0.0.0.0:0"]) == 1
    assert "expected an address of this machine alone" in capfd.readouterr().err
    assert json.loads(journal.read_bytes().splitlines()[0])["seq"] == 0
