"""Containers: nothing of a job reaches the command line, environment or mounts of an engine that is root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from people import Person, person, printed
from running import Server

from images import engine_settings, image_of_this_machine
from phalanx.backends.local.container import NoContainer, checked_variables

pytestmark = [
    pytest.mark.needs("podman"),
    pytest.mark.skipif(os.getuid() != 0, reason="only root can run tasks as somebody else"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        settings = engine_settings(Path(folder))
        options = ("--simulate", "--nodes", "1", "--gpus", "4")
        yield (started := Server(Path(folder, "data"), *options, CONTAINERS_CONF=str(settings)).start())
        started.stop()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    return image_of_this_machine(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def ada(server: Server) -> Person:
    return person(server, "member")


@pytest.mark.parametrize("image", ["--user=0:0", "-it", "--privileged", "a b"])
def test_an_image_that_looks_like_an_option_is_refused(ada: Person, image: str) -> None:
    refused = ada.client.post("/jobs", json={"image": image, "command": ["alpine", "id"], "gpus": 1})
    assert refused.status_code == 422
    assert "the name of an image" in refused.json()["message"]


@pytest.mark.parametrize("image", ["docker-archive:/root/x.tar", "dir:/etc", "containers-storage:x", "oci:/root/x:y"])
def test_an_image_that_is_a_file_of_the_machine_is_not_read(server: Server, ada: Person, image: str) -> None:
    made = ada.client.post("/jobs", json={"image": image, "command": ["id"], "gpus": 1}).raise_for_status().json()
    assert "expected a name such as" in server.wait(made["id"], "failed")["end_reason"]


def test_a_container_runs_as_the_unix_user_of_the_account_without_any_privilege(
    server: Server, ada: Person, image: str
) -> None:
    as_process = printed(server, ada.client, "id -u; id -g")
    script = "id -u; id -g; cat /proc/self/status"
    out, err = printed(server, ada.client, script, image=image)
    assert out.startswith(as_process[0]), err
    assert not out.startswith("0\n")
    assert "CapEff:\t0000000000000000" in out
    assert "CapBnd:\t0000000000000000" in out
    assert "NoNewPrivs:\t1" in out


def test_options_in_a_command_are_words_of_the_command(server: Server, ada: Person, image: str) -> None:
    body = {"image": image, "command": ["--user=0:0", "id"], "gpus": 1}
    made = ada.client.post("/jobs", json=body).raise_for_status().json()
    assert server.wait(made["id"], "failed", "succeeded")["state"] == "failed"
    logs = server.client.get(f"/jobs/{made['id']}/logs", params={"stream": "err"}).text
    assert '"--user=0:0"' in logs


def test_variables_of_a_job_reach_the_container_and_not_the_engine(
    server: Server, ada: Person, image: str, tmp_path: Path
) -> None:
    evil = tmp_path / "podman"
    evil.write_text("#!/bin/sh\nid -u\n")
    evil.chmod(0o755)
    env = {
        "PATH": f"{tmp_path}:/bin:/usr/bin",
        "LD_PRELOAD": "/nowhere/evil.so",
        "CONTAINERS_CONF": "/nowhere",
        "A": "b c",
    }
    out, err = printed(server, ada.client, "echo [$A] $LD_PRELOAD; id -u", image=image, env=env)
    assert out.splitlines()[0] == "[b c] /nowhere/evil.so"
    assert out.splitlines()[1] != "0"
    assert "nowhere/evil.so" in err, "the container's own loader complains of it, the engine's does not"


def test_a_mount_reaches_what_its_user_could_reach_and_nothing_else(server: Server, ada: Person, image: str) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        closed = folder / "closed"
        (closed / "inner").mkdir(parents=True)
        (closed / "inner" / "note").write_text("secret\n")
        closed.chmod(0o700)
        (folder / "open").mkdir()
        (folder / "open" / "note").write_text("for all\n")
        (folder / "link").symlink_to(closed / "inner")
        mounts = [{"source": f"{folder}/open", "target": "/seen"}]
        assert printed(server, ada.client, "cat /seen/note", image=image, mounts=mounts)[0] == "for all\n"
        for source in (closed / "inner", folder / "link", server.data / "run", Path("/root/.cache")):
            body = {"image": image, "command": ["ls", "/seen"], "gpus": 1}
            body["mounts"] = [{"source": str(source), "target": "/seen"}]
            made = ada.client.post("/jobs", json=body).raise_for_status().json()
            ended = server.wait(made["id"], "failed", "waiting", "succeeded")
            assert ended["state"] != "succeeded"
            assert "secret" not in server.client.get(f"/jobs/{made['id']}/logs").text
            server.client.post(f"/jobs/{made['id']}:cancel")


@pytest.mark.parametrize("mount", ["/etc:/seen:U", "/etc:/seen,suid"])
def test_options_of_a_mount_are_refused(server: Server, ada: Person, image: str, mount: str) -> None:
    source, _, target = mount.partition(":")
    body = {"image": image, "command": ["true"], "gpus": 1, "mounts": [{"source": source, "target": target}]}
    made = ada.client.post("/jobs", json=body)
    if made.status_code == 201:
        assert "expected an absolute path" in server.wait(made.json()["id"], "failed")["end_reason"]
    else:
        assert made.status_code == 422


def test_names_and_values_that_would_be_more_than_one_variable_are_refused() -> None:
    for name, value in (("A*", "x"), ("A B", "x"), ("#", "x"), ("A", "x\nB=y"), ("A", "x\ry")):
        with pytest.raises(NoContainer, match="env: "):
            checked_variables({name: value})
    assert checked_variables({"A": " x=y #z "}) == {"A": " x=y #z "}


def test_a_command_beside_a_container_runs_in_it_as_its_user(server: Server, ada: Person, image: str) -> None:
    from running import eventually

    from phalanx.backends.local.session import open_session

    body = {"image": image, "command": ["/bin/sh", "-c", "echo up; exec sleep 600"], "gpus": 1, "grace": "1s"}
    made = ada.client.post("/jobs", json={**body, "env": {"LD_PRELOAD": "/nowhere/evil.so"}}).raise_for_status().json()
    eventually(lambda: "up" in server.client.get(f"/jobs/{made['id']}/logs").text)
    session = open_session(server.data, made["id"], 1, 0, ("/bin/sh", "-c", "id -u"))
    shown = b""
    while piece := session.read():
        shown += piece
    session.close()
    uid = printed(server, ada.client, "id -u")[0].strip()
    assert uid in shown.decode().split()
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()
    server.wait(made["id"], "cancelled")
