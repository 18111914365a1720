"""What an upload for a study cannot do: to the server, to its disk, and to other users."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import msgspec
import pytest
from running import Server, eventually
from security.people import person

from phalanx.errors import PhalanxError
from phalanx.server.options import Options
from phalanx.server.refusal import Refusal
from phalanx.server.studies import uploads
from phalanx.server.studies.asked import Asked
from phalanx.server.studies.sources import study_for
from phalanx.server.studies.uploads import Uploads, shown_name

HEAD = b"job_id,submit_s,duration_s,gpus\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing."""
    folder = tmp_path_factory.mktemp("uploads")
    server = Server(folder / "data", "--backend", "rehearsal", "--nodes", "2", "--gpus", "8").start()
    yield server
    server.stop()


def left(server: Server) -> list[str]:
    return sorted(entry.name for entry in (server.data / "studies" / "uploads").glob("*"))


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("trace.csv", content)
    return file.getvalue()


CLUSTER = "nodes: [{count: 1, gpus: 8}]"
MANY_JOBS = "synthetic:jobs=10000000,load=0.9"
LITTLE_MEMORY = """
import sys
from phalanx.server.studies import run
run.MEMORY_BYTES_MAX = 300 << 20
sys.exit(run.main(sys.argv[1], sys.argv[2]))
"""
BOMB = bytes(64 << 20)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(zipped(BOMB), "zip"), (gzip.compress(BOMB), "gzip"), (b"PAR1" + b"x" * 99, "Parquet"), (b"BZh91AY", "bzip2")],
)
def test_what_is_packed_is_refused_and_nothing_is_unpacked(server: Server, content: bytes, kind: str) -> None:
    refused = server.client.post("/uploads", content=content)
    assert refused.status_code == 415
    assert refused.json()["message"] == f"the file is packed ({kind}): unpack it first, and send it as text"
    assert left(server) == []


def test_a_body_that_is_packed_on_its_way_or_a_form_is_refused(server: Server) -> None:
    packed = {"Content-Encoding": "gzip"}
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    for headers, told in ((packed, "the body is packed (gzip)"), (form, "send the file itself")):
        refused = server.client.post("/uploads", content=HEAD, headers=headers)
        assert refused.status_code == 415
        assert told in refused.json()["message"]
    assert left(server) == []


def test_a_gigabyte_is_refused_before_a_byte_of_it_is_read(server: Server) -> None:
    token = (server.data / "admin.token").read_text().strip()
    connection = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=60)
    connection.putrequest("POST", "/api/v1/uploads")
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert left(server) == []


def test_ten_million_rows_are_refused_while_they_arrive_and_leave_nothing(server: Server) -> None:
    refused = server.client.post("/uploads", content=HEAD + b"0,1,1\n" * 10_000_000)
    assert refused.status_code == 413
    assert "expected at most 1,000,000 lines" in refused.json()["message"]
    assert left(server) == []


def test_an_upload_that_breaks_off_leaves_nothing(server: Server) -> None:
    def broken() -> Iterator[bytes]:
        yield HEAD + b"0,1,1\n" * 400_000
        raise ConnectionError

    with pytest.raises(ConnectionError):
        server.client.post("/uploads", content=broken())
    eventually(lambda: left(server) == [])


def test_an_empty_file_and_one_of_zero_bytes_are_refused(server: Server) -> None:
    assert server.client.post("/uploads", content=b"").status_code == 422
    assert server.client.post("/uploads", content=bytes(100)).status_code == 415


def test_a_name_makes_no_path(server: Server) -> None:
    before = {path.name for path in server.data.iterdir()}
    for name in ("../../../phalanx.db", "..", "/etc/passwd", "C:\\x\\y.csv", "a\nb", "\u202evsc.exe", "x" * 300):
        made = server.client.post("/uploads", params={"name": name}, content=HEAD).raise_for_status().json()
        assert "/" not in made["name"]
        assert made["name"].isprintable()
        assert 0 < len(made["name"]) <= 100
        server.client.delete(f"/uploads/{made['id']}").raise_for_status()
    assert {path.name for path in server.data.iterdir()} == before
    assert server.client.post("/uploads", params={"name": "x" * 301}, content=HEAD).status_code == 422


def test_an_id_is_nothing_but_an_id(server: Server) -> None:
    for name in ("..", "%2e%2e", "..%2f..%2fadmin.token", "0" * 15, "0" * 17, "G" * 16):
        assert server.client.get(f"/studies/{name}").status_code in (404, 422)
        assert server.client.delete(f"/uploads/{name}").status_code in (404, 405, 422)
        refused = server.client.post("/studies", json={"source": f"upload:{name}"})
        assert refused.status_code in (404, 422)
    assert (server.data / "admin.token").exists()


def test_one_user_has_so_many_uploads_and_another_cannot_use_or_remove_them(server: Server) -> None:
    ada, bob = person(server, "viewer"), person(server, "viewer")
    made = [ada.client.post("/uploads", content=HEAD).raise_for_status().json()["id"] for _ in range(4)]
    refused = ada.client.post("/uploads", content=HEAD)
    assert refused.status_code == 409
    assert "remove one that you need no more" in refused.json()["message"]
    assert bob.client.get("/uploads").json()["items"] == []
    assert bob.client.post("/studies", json={"source": f"upload:{made[0]}"}).status_code == 404
    assert bob.client.delete(f"/uploads/{made[0]}").status_code == 404
    for each in made:
        assert ada.client.delete(f"/uploads/{each}").status_code == 204


def test_who_may_not_look_at_the_cluster_or_not_write_uploads_nothing(server: Server) -> None:
    member = person(server, "member of team")
    assert member.client.post("/uploads", content=HEAD).status_code == 403
    reader = server.client.post("/tokens", json={"name": "r", "scopes": ["read"]}).raise_for_status().json()["token"]
    assert server.as_user(reader).post("/uploads", content=HEAD).status_code == 403
    assert left(server) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (HEAD + b"1,NaN,1,1\n", "trace:2: "),
        (HEAD + b"1,0,inf,1\n", "trace:2: "),
        (HEAD + b"1,0,1,-1\n", "trace:2: "),
        (HEAD + b"1,0,1e400,1\n", "trace:2: "),
        (b"job_id,submit_s," + b"x" * 5_000_000 + b",gpus\n1,0,1,1\n", "trace:1: "),
        (HEAD + b'1,0,1,"' + b"x" * 5_000_000, "trace:2: "),
        (b"[" * 500_000, "nested"),
        (b"\xff\xfe" + b"a" * 100, "trace:1: expected text in UTF-8"),
        (b'{"seq":0,"now":0}\n', "trace:1"),
        (HEAD, "no job"),
    ],
)
def test_nonsense_in_a_trace_is_named_by_its_place_and_no_path_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace").write_bytes(content)
    asked = Asked(kind="compare", user="ada", created_ms=0, source="upload", trace="x", cluster=CLUSTER)
    with pytest.raises(PhalanxError) as refused:
        study_for(asked, Options(data=str(tmp_path)))
    assert told in str(refused.value)
    assert str(tmp_path) not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_more_memory_than_a_study_may_have_ends_it_with_what_to_do(tmp_path: Path) -> None:
    asked = Asked(kind="compare", user="ada", created_ms=0, source=MANY_JOBS, trace="made", cluster=CLUSTER)
    (tmp_path / "asked.json").write_bytes(msgspec.json.encode(asked))
    handle = Options(data=str(tmp_path)).in_memory()
    command = [sys.executable, "-c", LITTLE_MEMORY, str(handle), str(tmp_path)]
    assert subprocess.run(command, pass_fds=(handle,), timeout=240).returncode == 1
    assert (tmp_path / "error").read_text().endswith("of memory: take a part of the trace")


@pytest.mark.parametrize("policy", ["./mine.py:policy", "tiresias-gittins:samples=/etc/passwd", "/tmp/x.py:p:a=1"])
def test_no_file_is_read_and_no_code_run_for_a_policy(server: Server, policy: str) -> None:
    refused = server.client.post("/studies", json={"source": "synthetic:jobs=5,load=0.5", "policies": [policy]})
    assert refused.status_code == 422
    assert "a server knows policies by their names" in refused.json()["message"]
    cluster = f"nodes: [{{count: 1, gpus: 8}}]\npolicy: '{policy}'\n"
    body = {"source": "synthetic:jobs=5,load=0.5", "cluster": cluster}
    study = server.client.post("/studies", json=body).raise_for_status().json()["id"]
    eventually(lambda: server.client.get(f"/studies/{study}").json()["state"] == "failed")
    assert "a server knows policies by their names" in server.client.get(f"/studies/{study}").json()["error"]


def test_a_line_without_end_is_refused_before_it_is_all_there(tmp_path: Path) -> None:
    with Uploads(tmp_path).begin("ada", "x", 0) as arriving:
        arriving.take(HEAD)
        for _ in range(16):
            arriving.take(b"x" * (1 << 20))
        with pytest.raises(Refusal, match="line 2 has more than 16 MiB"):
            arriving.take(b"x")
    assert list((tmp_path / "uploads").iterdir()) == []


def test_uploads_of_all_users_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_BYTES_MAX", 60)
    monkeypatch.setattr(uploads, "UPLOADS_BYTES_MAX", 100)
    there = Uploads(tmp_path)
    with there.begin("ada", "x", 0) as arriving:
        arriving.take(b"x" * 50)
        arriving.keep()
    with pytest.raises(Refusal, match="take all their space"):
        there.begin("bob", "x", 0)
    there.remove_old(uploads.UPLOAD_KEPT_MS + 1)
    assert there.all() == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [("philly.csv", "philly.csv"), ("a/../b.csv", "b.csv"), ("..", "trace"), ("", "trace"), ("<b>.csv", "_b_.csv")],
)
def test_a_name_is_shown_without_what_could_be_taken_for_something_else(name: str, shown: str) -> None:
    assert shown_name(name) == shown
