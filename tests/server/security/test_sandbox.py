"""Jobs of a server that is not root: they run as its user, and must not see what is the server's."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from people import person, printed
from running import Server, eventually

# As another user to itself and to its jobs, while the files of this machine's user stay its own: a server that is not
# root, whoever runs the tests and wherever Python is.
AS_A_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def has_user_namespaces() -> bool:
    return not subprocess.run([*AS_A_USER, "unshare", "--user", "--mount", "true"], check=False).returncode


pytestmark = pytest.mark.skipif(not has_user_namespaces(), reason="this machine has no user namespaces")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory() as folder:
        home = Path(folder, "home")
        (home / ".config" / "phalanx").mkdir(parents=True)
        (home / ".config" / "phalanx" / "config.yaml").write_text("token: of the admin\n")
        started = Server(
            Path(folder, "data"), "--simulate", "--nodes", "1", "--gpus", "4", prefix=AS_A_USER, HOME=str(home)
        )
        yield started.start()
        started.stop()


def test_a_job_cannot_read_the_token_nor_the_state_nor_other_jobs(server: Server) -> None:
    ada = person(server, "member")
    data, home = server.data, server.data.parent / "home"
    mine, _ = printed(server, server.client, "echo secret > mine; echo $PWD/mine")
    hidden = [data / "admin.token", data / "phalanx.db", data / "run" / "engine.sock", Path(mine.strip())]
    hidden.append(home / ".config" / "phalanx" / "config.yaml")
    assert all(path.exists() for path in hidden)
    out, err = printed(server, ada.client, "; ".join(f"cat {path}" for path in hidden))
    assert out == ""
    assert err.count("No such file or directory") == len(hidden), err


def test_a_job_sees_its_own_folders_and_what_it_is_told(server: Server) -> None:
    ada = person(server, "member")
    script = "id -u && echo a > mine && echo b > $PHALANX_CHECKPOINT_DIR/c && cat $PHALANX_GANG_FILE && ls -a .."
    out, err = printed(server, ada.client, script)
    assert err == ""
    assert out.startswith("1000\n")
    assert '"world_size": 1' in out
    made = server.client.get("/jobs", params={"user": ada.name}).json()["items"][0]["id"]
    assert (server.data / "jobs" / made / "work" / "mine").read_text() == "a\n"
    assert (server.data / "checkpoints" / made / "c").read_text() == "b\n"
    assert (server.data / "jobs" / made / "work").stat().st_mode & 0o777 == 0o700


def test_a_job_can_say_where_its_steps_end(server: Server) -> None:
    assert printed(server, server.client, "echo 0 1 > $PHALANX_STEPS_PIPE && echo told") == ("told\n", "")


@pytest.mark.parametrize(
    "way",
    [
        "umount {data}; cat {data}/admin.token",
        "unshare -Urm sh -c 'umount {data}; cat {data}/admin.token'",
        "unshare -Urm sh -c 'mkdir /tmp/x; mount --bind / /tmp/x; cat /tmp/x{data}/admin.token'",
        "nsenter -t {up} -m cat {data}/admin.token; nsenter -t {up} -U -m cat {data}/admin.token",
        "cat /proc/{up}/root{data}/admin.token",
        "cat /proc/{loop}/cwd/../{data}/admin.token",
        "for each in /proc/[0-9]*; do cat $each/root{data}/admin.token $each/fd/* $each/environ </dev/null; done",
        "cd $PHALANX_CHECKPOINT_DIR/../.. && cat admin.token",
        "mv {data} {data}2 && echo written && mv {data}2 {data}",
        "mv {parent} {parent}2 && echo written && mv {parent}2 {parent}",
        'unshare -Urm sh -c "mv {parent} {parent}2 && echo written && mv {parent}2 {parent}"',
        "mv $HOME/.config $HOME/.config2 && echo written && mv $HOME/.config2 $HOME/.config",
        "prlimit --pid {loop} --core=unlimited && echo written",
        "echo x > $(dirname $PHALANX_GANG_FILE)/rest.json && echo written",
    ],
)
def test_there_is_no_way_around(server: Server, way: str) -> None:
    names = {"data": server.data, "parent": server.data.parent, "loop": server.pid("loop"), "up": server.process_id()}
    script = way.format(**names)
    out, _ = printed(server, person(server, "member").client, f"timeout 20 sh -c {shlex.quote(script)}; true")
    assert (server.data / "admin.token").read_text().strip() not in out
    assert "written" not in out


def test_a_command_beside_a_task_is_in_the_same_sandbox_and_sees_its_processes(server: Server) -> None:
    from phalanx.backends.local.session import open_session

    made = server.submit(command=["sh", "-c", "echo $$ > pid; exec sleep 600"], gpus=1)
    pid = server.data / "jobs" / made["id"] / "work" / "pid"
    eventually(lambda: pid.exists() and pid.read_text().strip())
    script = f"cat {server.data}/admin.token; readlink /proc/{pid.read_text().strip()}/cwd; cat pid"
    session = open_session(server.data, made["id"], 1, 0, ("sh", "-c", f"{script} 2>&1; sleep 0.2"))
    shown = b""
    while piece := session.read():
        shown += piece
    session.close()
    token = (server.data / "admin.token").read_text().strip()
    assert token not in shown.decode()
    assert str(pid.parent) in shown.decode()
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()
    server.wait(made["id"], "cancelled")


def test_a_stop_ends_all_processes_of_a_job_in_a_sandbox(server: Server) -> None:
    made = server.submit(command=["sh", "-c", "setsid sleep 601 & echo $! > pid; wait"], gpus=1, grace="1s")
    pid = server.data / "jobs" / made["id"] / "work" / "pid"
    eventually(lambda: pid.exists() and pid.read_text().strip())
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()
    server.wait(made["id"], "cancelled")
    sleepers = subprocess.run(["pgrep", "-f", "^sleep 601$"], capture_output=True, check=False)
    assert sleepers.stdout == b""


def test_where_nothing_can_be_hidden_up_says_so_aloud() -> None:
    # Within the outer namespace one more may be made, the server's own, and none for its jobs.
    script = f'echo 1 > /proc/sys/user/max_user_namespaces; exec {" ".join(AS_A_USER)} "$@"'
    limited = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
    with TemporaryDirectory() as folder:
        started = Server(Path(folder, "data"), "--simulate", "--nodes", "1", "--gpus", "1", prefix=limited).start()
        assert "WARNING: every job runs as user 1000 and can read the admin's token" in started.told()
        started.stop()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be root without the means of it")
def test_root_that_cannot_become_another_user_is_not_started() -> None:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        refused = Server(Path(folder, "data"), prefix=("unshare", "--user", "--map-root-user"))
        with pytest.raises(AssertionError, match="cannot become another user, so every job would be root"):
            refused.start()
