"""As whom jobs run, where the server is root: never as it, never as a user that the submitter may not act as."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from people import person, printed
from running import Server, eventually

from phalanx.folders import default_data

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can run tasks as somebody else")


UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with TemporaryDirectory() as folder:
        cluster = Path(folder, "cluster.yaml")
        cluster.write_text(
            "nodes: [{count: 1, gpus: 4, gpu_type: H100, cpus: 64, memory_gb: 512}]\n"
            "queues: [{name: default}, {name: ta}, {name: tb}]\npolicy: priority\n"
        )
        started = Server(Path(folder, "data"), "--cluster", str(cluster)).start()
        yield started
        started.stop()


def job(queue: str = "ta", **more: object) -> dict[str, object]:
    return {"queue": queue, "command": ["id"], "gpus": 1, **more}


def test_an_operator_cannot_submit_as_a_user_that_there_is_not(server: Server) -> None:
    operator = person(server, "operator of ta")
    assert operator.client.post("/jobs", json=job(user="ghost")).status_code == 403
    response = server.client.post("/jobs", json=job(user="ghost"))
    assert response.status_code == 403
    assert "no user 'ghost'" in response.json()["message"]


def test_an_operator_cannot_submit_as_the_admin_nor_as_a_user_of_another_tenant(server: Server) -> None:
    operator, other, both = (
        person(server, *roles) for roles in (["operator of ta"], ["member of tb"], ["member of ta", "member of tb"])
    )
    chief = person(server, "admin of ta")
    for victim in ("admin", other.name, both.name, chief.name):
        assert operator.client.post("/jobs", json=job(user=victim)).status_code == 403
        assert operator.client.post("/jobs:batch", json={"jobs": [job(), job(user=victim)]}).status_code == 403


def test_a_member_cannot_submit_as_another_member_of_the_queue(server: Server) -> None:
    ada, bob = person(server, "member of ta"), person(server, "member of ta")
    assert ada.client.post("/jobs", json=job(user=bob.name)).status_code == 403


def test_an_operator_may_submit_as_a_member_of_the_queue_and_the_job_runs_as_that_member(server: Server) -> None:
    operator, ada = person(server, "operator of ta"), person(server, "member of ta")
    as_ada = printed(server, ada.client, "id -u", queue="ta")[0]
    assert printed(server, operator.client, "id -u", queue="ta", user=ada.name)[0] == as_ada
    assert printed(server, operator.client, "id -u", queue="ta")[0] != as_ada


def test_a_user_without_a_role_in_the_queue_cannot_be_submitted_for_even_by_the_admin(server: Server) -> None:
    other = person(server, "member of tb")
    response = server.client.post("/jobs", json=job(user=other.name))
    assert response.status_code == 403
    assert "no role of member in the queue 'ta'" in response.json()["message"]


def test_no_job_runs_as_root_and_every_account_has_a_unix_user_of_its_own(server: Server) -> None:
    ada, bob = person(server, "member of ta"), person(server, "member of ta")
    script = "id -u; id -g; id -G"
    found = [printed(server, each, script, queue="ta")[0].split() for each in (server.client, ada.client, bob.client)]
    assert all("0" not in numbers for numbers in found)
    assert len({numbers[0] for numbers in found}) == 3
    assert printed(server, ada.client, script, queue="ta")[0].split() == found[1]


def test_a_job_cannot_read_the_token_nor_the_state_nor_what_belongs_to_other_accounts(server: Server) -> None:
    ada, bob = person(server, "member of ta"), person(server, "member of ta")
    where, _ = printed(server, ada.client, "touch mine; echo $PWD $PHALANX_CHECKPOINT_DIR $HOME", queue="ta")
    work, checkpoints, home = where.split()
    secret = [server.data / name for name in ("admin.token", "phalanx.db", "log/loop.log", "run/engine.sock")]
    script = "; ".join(f"cat {path}" for path in (*secret, f"{work}/mine", f"{work}/../1/order.json"))
    out, err = printed(server, bob.client, f"{script}; ls {checkpoints} {home} {server.data}/jobs", queue="ta")
    assert out == ""
    assert err.count("Permission denied") == 9, err
    for folder in (work, checkpoints, home):
        assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700


def test_an_account_has_a_home_that_is_still_there_for_its_next_job(server: Server) -> None:
    ada = person(server, "member of ta")
    assert printed(server, ada.client, "echo kept > $HOME/note && cat $HOME/note", queue="ta") == ("kept\n", "")
    assert printed(server, ada.client, "cat $HOME/note; echo $USER", queue="ta")[0] == f"kept\n{ada.name}\n"


def test_the_pipe_in_which_tasks_tell_their_steps_is_their_own(server: Server) -> None:
    ada = person(server, "member of ta")
    out, _ = printed(
        server, ada.client, "stat -c '%a %u' $PHALANX_STEPS_PIPE; id -u; ls -ld ${PHALANX_STEPS_PIPE%/*}", queue="ta"
    )
    mode, owner, own, listing = out.split(maxsplit=3)
    assert (mode, owner) == ("600", own)
    assert listing.startswith("drwxr-x---")


def test_a_waiting_job_of_a_user_that_is_deleted_is_cancelled_with_the_reason(server: Server) -> None:
    ada = person(server, "member of ta")
    blocker = server.submit(queue="ta", command=["sleep", "600"], gpus=4, priority=10)
    waiting = ada.client.post("/jobs", json=job()).raise_for_status().json()
    server.client.delete(f"/users/{ada.name}").raise_for_status()
    ended = server.wait(waiting["id"], "cancelled")
    assert ended["end_reason"] == f"cancelled: user '{ada.name}' was deleted"
    assert ended["attempts"] == 0
    server.client.post(f"/jobs/{blocker['id']}:cancel").raise_for_status()
    server.wait(blocker["id"], "cancelled")


def test_a_job_of_a_user_that_was_deleted_while_it_ran_does_not_start_again(server: Server) -> None:
    ada = person(server, "member of ta")
    script = ["sh", "-c", "until test -e go; do sleep 0.05; done; exit 3"]
    made = ada.client.post("/jobs", json=job(command=script, retry={"limit": 5})).raise_for_status().json()
    server.wait(made["id"], "running")
    server.client.delete(f"/users/{ada.name}").raise_for_status()
    (server.data / "jobs" / made["id"] / "work" / "go").touch()
    ended = server.wait(made["id"], "failed", "succeeded")
    assert ended["state"] == "failed"
    assert f"no user '{ada.name}'" in ended["end_reason"]


def test_waiting_jobs_of_a_user_that_is_disabled_are_held_and_do_not_start_when_released(server: Server) -> None:
    ada = person(server, "member of ta")
    blocker = server.submit(queue="ta", command=["sleep", "600"], gpus=4, priority=10)
    waiting = ada.client.post("/jobs", json=job()).raise_for_status().json()
    server.client.patch(f"/users/{ada.name}", json={"disabled": True}).raise_for_status()
    assert server.job(waiting["id"])["held"]
    server.client.post(f"/jobs/{blocker['id']}:cancel").raise_for_status()
    server.wait(blocker["id"], "cancelled")
    server.client.post(f"/jobs/{waiting['id']}:release").raise_for_status()
    assert "is disabled" in server.wait(waiting["id"], "failed")["end_reason"]


def test_a_job_keeps_the_unix_user_it_was_submitted_with(server: Server) -> None:
    ada = person(server, "member of ta", unix_user="nobody")
    made = ada.client.post("/jobs", json=job(begin="+1h")).raise_for_status().json()
    spec = server.job(made["id"])["spec"]
    assert spec["execution"]["run_as"]["user"] == "nobody"
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()


def test_no_account_can_be_mapped_to_root(server: Server) -> None:
    ada = person(server, "member of ta")
    response = server.client.patch(f"/users/{ada.name}", json={"unix_user": "root"})
    assert response.status_code == 422
    assert "never run as root" in response.json()["message"]


def test_the_number_of_a_deleted_user_is_never_given_again(server: Server) -> None:
    ada = person(server, "member of ta")
    first = printed(server, ada.client, "id -u", queue="ta")[0]
    server.client.delete(f"/users/{ada.name}").raise_for_status()
    assert printed(server, person(server, "member of ta").client, "id -u", queue="ta")[0] != first


def test_a_new_account_of_a_deleted_ones_name_has_a_home_of_its_own(server: Server) -> None:
    ada = person(server, "member of ta")
    printed(server, ada.client, "echo secret > $HOME/note", queue="ta")
    server.client.delete(f"/users/{ada.name}").raise_for_status()
    server.client.post("/users", json={"name": ada.name}).raise_for_status()
    server.client.put(f"/users/{ada.name}/roles/ta", json={"role": "member"}).raise_for_status()
    token = server.client.post("/tokens", json={"name": "t", "user": ada.name}).raise_for_status().json()["token"]
    assert printed(server, server.as_user(token), "ls $HOME; cat $HOME/../*/note", queue="ta")[0] == ""


def test_a_server_that_is_root_refuses_a_data_folder_that_its_jobs_cannot_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(AssertionError, match=f"cannot pass {closed}"):
        Server(closed / "data").start(passable=False)


def test_by_default_root_keeps_its_data_where_its_jobs_can_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_data() == "/var/lib/phalanx"


def test_exec_runs_beside_a_job_only_for_those_who_may_act_as_its_user(server: Server) -> None:
    operator, both = person(server, "operator of ta"), person(server, "member of ta", "member of tb")
    made = both.client.post("/jobs", json=job(command=["sleep", "600"])).raise_for_status().json()
    server.wait(made["id"], "running")
    refused = operator.client.get(f"/jobs/{made['id']}/exec", params={"arg": ["id"]}, headers=UPGRADE)
    assert refused.status_code == 403
    assert operator.client.post(f"/jobs/{made['id']}:cancel").status_code == 200
    eventually(lambda: server.job(made["id"])["state"] == "cancelled")


def test_exec_beside_a_job_with_a_secret_needs_a_grant_of_it(server: Server) -> None:
    operator, ada = person(server, "operator of ta"), person(server, "member of ta")
    grants = [{"queue": "ta", "user": ada.name}]
    server.client.put("/secrets/ADAS_KEY", json={"value": "s3cr3t", "grants": grants}).raise_for_status()
    body = job(command=["sleep", "600"], secrets=["ADAS_KEY"])
    made = ada.client.post("/jobs", json=body).raise_for_status().json()
    server.wait(made["id"], "running")
    refused = operator.client.get(f"/jobs/{made['id']}/exec", params={"arg": ["env"]}, headers=UPGRADE)
    assert refused.status_code == 403
    assert "no grant for" in refused.json()["message"]
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()
    server.wait(made["id"], "cancelled")


def test_an_operator_cannot_act_for_a_user_who_has_lost_all_roles_or_was_deleted(server: Server) -> None:
    operator, both = person(server, "operator of ta"), person(server, "member of ta", "member of tb")
    made = both.client.post("/jobs", json=job(command=["sleep", "600"])).raise_for_status().json()
    server.wait(made["id"], "running")
    for queue in ("ta", "tb"):
        server.client.delete(f"/users/{both.name}/roles/{queue}").raise_for_status()
    exec_path = f"/jobs/{made['id']}/exec"
    assert operator.client.get(exec_path, params={"arg": ["id"]}, headers=UPGRADE).status_code == 403
    server.client.delete(f"/users/{both.name}").raise_for_status()
    assert operator.client.get(exec_path, params={"arg": ["id"]}, headers=UPGRADE).status_code == 403
    again = server.client.post("/users", json={"name": both.name})
    assert again.status_code == 409, "its jobs would be taken for those of the new one"
    assert f"({made['id']})" in again.json()["message"]
    server.client.post(f"/jobs/{made['id']}:cancel").raise_for_status()
    server.wait(made["id"], "cancelled")
    server.client.post("/users", json={"name": both.name}).raise_for_status()


def test_what_a_task_writes_into_the_pipe_of_its_steps_ends_nothing(server: Server) -> None:
    script = (
        "printf '%05000d 1\\n' 7 > $PHALANX_STEPS_PIPE; seq 5000 9000 | sed 's/$/ 1/' > $PHALANX_STEPS_PIPE; echo on"
    )
    made = server.submit(queue="ta", command=["sh", "-c", script], gpus=1)
    assert server.wait(made["id"], "succeeded", "failed")["attempts"] == 1
    assert server.client.get(f"/jobs/{made['id']}/logs").text == "on\n"


def test_jobs_of_other_tenants_do_not_stand_in_the_way_of_a_name(server: Server) -> None:
    ada, eve = person(server, "member of ta"), person(server, "member of tb")
    for _ in range(12):
        eve.client.post("/jobs", json=job("tb", name="train", begin="+1h")).raise_for_status()
    made = ada.client.post("/jobs", json=job(name="train", begin="+1h")).raise_for_status().json()
    assert ada.client.get("/jobs/train").raise_for_status().json()["id"] == made["id"]


def test_a_job_cannot_ask_for_a_grace_that_never_ends_nor_for_tasks_that_weigh_nothing(server: Server) -> None:
    assert server.client.post("/jobs", json=job(grace="365d")).status_code == 422
    empty = {"queue": "ta", "command": "true", "gang": [{"replicas": 100_000, "gpus": 0}]}
    refused = server.client.post("/jobs", json=empty)
    assert refused.status_code == 422
    assert "neither GPUs nor CPUs nor memory" in refused.json()["message"]
