"""The operator's verbs against a real server."""

from __future__ import annotations

import io
import json
import os
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from live import Phalanx, Server, until

from phalanx.cli.exit import Exit


def test_nodes_are_listed_with_what_is_used(phalanx: Phalanx) -> None:
    nodes = phalanx("nodes", "-o", "json").data
    assert [(node["name"], node["gpus"]) for node in nodes] == [("n0", 4), ("n1", 4)]


def test_a_drained_node_takes_no_work_until_it_is_undrained(phalanx: Phalanx) -> None:
    assert phalanx("drain", "n1", "--reason", "new fan").code == 0
    assert phalanx("nodes", "--health", "draining", "-o", "name").out == "n1\n"
    assert "new fan" in phalanx("nodes").out
    assert phalanx("submit", "--gpus", "4", "--wait", "-o", "json", "--", "true").data["nodes"] in ([], ["n0"])
    assert phalanx("undrain", "n1").code == 0
    assert phalanx("nodes", "--health", "draining", "-o", "name").out == ""


def test_an_unknown_node_is_not_found(phalanx: Phalanx) -> None:
    assert phalanx("drain", "nosuch").code == Exit.NOT_FOUND


def test_queues_and_reservations_are_lists(phalanx: Phalanx) -> None:
    assert phalanx("users", "grant", "admin", "admin", "--queue", "research/llm").code == 0
    job = phalanx("submit", "--queue", "research/llm", "-o", "name", "--", "sleep", "600").out.strip()
    assert "research/llm" in phalanx("queues", "-o", "name").out.split()
    phalanx("cancel", job)
    assert isinstance(phalanx("reservations", "-o", "json").data, list)


def test_events_tell_of_a_job_from_its_submission_to_its_end(phalanx: Phalanx) -> None:
    job = phalanx("submit", "--wait", "-o", "json", "--", "true").data["id"]
    lines = phalanx("events", "--since", "0", "--job", job, "--limit", "3", "-o", "json").out.splitlines()
    types = [json.loads(line)["type"] for line in lines]
    assert types == ["JobSubmitted", "Done", "AttemptEnded"]
    assert "AttemptEnded" in phalanx("events", "--since", "0", "--type", "AttemptEnded", "--limit", "1").out


def test_events_of_the_past_are_told_by_name_and_end(phalanx: Phalanx) -> None:
    phalanx("submit", "--name", "of-the-past", "--wait", "--", "true")
    told = phalanx("events", "--no-follow", "--job", "of-the-past")
    assert [line.split()[2] for line in told.out.splitlines()] == ["JobSubmitted", "Done", "AttemptEnded"]


def test_the_audit_log_says_who_did_what_to_what(phalanx: Phalanx) -> None:
    job = phalanx("submit", "-o", "name", "--", "sleep", "600").out.strip()
    phalanx("cancel", job)
    told = phalanx("audit", "--target", job, "-o", "json").data
    assert [(entry["user"], entry["verb"], entry["outcome"]) for entry in told] == [
        ("admin", "cancel job", "done"),
        ("admin", "submit jobs", "done"),
    ]
    assert {entry["origin"] for entry in told} == {"127.0.0.1"}
    assert phalanx("audit", "--limit", "1").out.count("\n") == 2


def test_alerts_are_a_list(phalanx: Phalanx) -> None:
    assert phalanx("alerts", "-o", "json").data == []


def test_who_holds_a_job_that_runs_hears_that_it_goes_on(phalanx: Phalanx) -> None:
    job = phalanx("submit", "-o", "name", "--", "sleep", "600").out.strip()
    until(lambda: phalanx("job", job, "-o", "json").data["state"] == "running")
    assert f"job {job} has started already: it goes on" in phalanx("hold", job).err
    phalanx("cancel", job)


def test_top_fits_one_screen_and_refuses_a_pipe(phalanx: Phalanx) -> None:
    assert "n0" in phalanx("top", "--once").out
    assert phalanx("top").code == Exit.REFUSED


def test_backends_say_what_they_can_do_here_and_why_not_the_rest(phalanx: Phalanx) -> None:
    rows = {row["capability"]: row for row in phalanx("backends", "-o", "json").data if row["backend"] == "local"}
    assert rows["adopt"]["here"]
    assert all(row["here"] or row["why_not"] for row in rows.values())
    live = {row["capability"] for row in phalanx("backends", "--live", "-o", "json").data if row["backend"] == "local"}
    assert live == set(rows)


def test_a_token_is_kept_where_only_its_owner_can_read_it(
    phalanx: Phalanx, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert phalanx("login", "--context", "here").code == 0
    config = tmp_path / "config.yaml"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    token = Path(server.token_file).read_text().strip()
    assert token not in phalanx("config").out
    monkeypatch.delenv("PHALANX_ADDR")
    monkeypatch.delenv("PHALANX_TOKEN_FILE")
    assert phalanx("config", "addr").out.strip() == server.url
    assert phalanx("jobs").code == 0
    config.chmod(0o644)
    refused = phalanx("jobs")
    assert refused.code == 1
    assert "chmod 600" in refused.err


def test_a_context_can_be_used_and_removed(phalanx: Phalanx) -> None:
    phalanx("login", "--context", "one")
    phalanx("login", "--context", "two")
    phalanx("config", "use", "one")
    assert {row["name"]: row["current"] for row in phalanx("config", "-o", "json").data} == {"one": True, "two": False}
    phalanx("config", "remove", "one")
    assert [row["name"] for row in phalanx("config", "-o", "json").data] == ["two"]
    assert phalanx("config", "use", "one").code == Exit.NOT_FOUND


def test_a_user_with_a_token_of_a_role_may_do_what_the_role_may(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert phalanx("users", "add", "bob", "--role", "viewer").code == 0
    assert "bob" in phalanx("users", "-o", "name").out.split()
    made = phalanx("tokens", "add", "mine", "--scope", "read").out.strip()
    monkeypatch.setenv("PHALANX_TOKEN", made)
    assert phalanx("jobs").code == 0
    assert phalanx("submit", "--", "true").code == Exit.REFUSED
    monkeypatch.delenv("PHALANX_TOKEN")
    [token] = [token for token in phalanx("tokens", "-o", "json").data if token["name"] == "mine"]
    assert phalanx("tokens", "revoke", token["id"]).code == 0
    assert phalanx("users", "remove", "bob").code == 0


def test_a_wrong_token_is_refused_with_what_to_do(phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", "wrong")
    refused = phalanx("jobs")
    assert refused.code == Exit.REFUSED
    assert "PHALANX_TOKEN is set: correct or unset it" in refused.err


def test_a_server_that_is_not_there_is_unreachable_with_what_to_do(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    refused = phalanx("jobs")
    assert refused.code == Exit.UNREACHABLE
    assert "phalanx up" in refused.err


@pytest.mark.parametrize("addr", ["ftp://here", "127.0.0.1:8470", "http://"])
def test_an_address_that_is_none_is_named(phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch, addr: str) -> None:
    monkeypatch.setenv("PHALANX_ADDR", addr)
    refused = phalanx("jobs")
    assert refused.code == Exit.UNREACHABLE
    assert "http://HOST:PORT" in refused.err


def test_a_shell_completes_the_names_of_live_jobs(phalanx: Phalanx) -> None:
    job = phalanx("submit", "--name", "completed-by-tab", "-o", "name", "--", "sleep", "600").out.strip()
    asked = {"_PHALANX_COMPLETE": "bash_complete", "COMP_WORDS": "phalanx cancel complet", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "phalanx"]
    found = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert found.stdout == "plain,completed-by-tab\n"
    phalanx("cancel", job)


def test_a_shell_that_asks_with_no_server_gets_nothing_and_no_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    from phalanx.cli.complete import live_jobs

    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    assert live_jobs(None, None, "") == []  # type: ignore[arg-type]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed_for_each_shell(phalanx: Phalanx, shell: str) -> None:
    assert "_PHALANX_COMPLETE" in phalanx("completion", shell).out


def test_a_config_that_is_no_config_is_refused(phalanx: Phalanx, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    for text in ("- 1\n", "contexts: {a: {colour: green}}\n", "{"):
        config.write_text(text)
        config.chmod(0o600)
        refused = phalanx("jobs")
        assert refused.code == 1
        assert str(config) in refused.err
        assert os.linesep not in refused.err.strip() or text == "{"


def test_a_user_logs_in_with_a_password_and_a_wrong_one_is_refused(
    phalanx: Phalanx, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery staple\n" * 2))
    assert phalanx("users", "add", "eve", "--password", "--role", "viewer").code == 0
    monkeypatch.delenv("PHALANX_TOKEN_FILE")
    assert phalanx("login", server.url, "--user", "eve", "--days", "1").code == 0
    assert phalanx("jobs").code == 0
    assert phalanx("submit", "--", "true").code == Exit.REFUSED
    monkeypatch.setattr("sys.stdin", io.StringIO("something else\n"))
    assert phalanx("login", server.url, "--user", "eve").code == Exit.REFUSED


def test_a_log_in_asks_for_scopes(phalanx: Phalanx, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse battery staple\n" * 2))
    assert phalanx("users", "add", "zoe", "--password", "--role", "admin").code == 0
    refused = phalanx("login", server.url, "--scope", "read")
    assert refused.code == 2
    assert "--scope goes with --user" in refused.err
    monkeypatch.delenv("PHALANX_TOKEN_FILE")
    assert phalanx("login", server.url, "--user", "zoe", "--scope", "read").code == 0
    assert phalanx("jobs").code == 0
    assert phalanx("users").code == Exit.REFUSED


def test_a_user_changes_their_password_with_the_current_one(
    phalanx: Phalanx, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("the first password\n" * 2))
    assert phalanx("users", "add", "mia", "--password", "--role", "viewer").code == 0
    admin = os.environ["PHALANX_TOKEN_FILE"]
    monkeypatch.delenv("PHALANX_TOKEN_FILE")
    assert phalanx("login", server.url, "--user", "mia", "--scope", "write").code == 0
    for lines, message in (
        ("not the password\nthe second password\n", "current_password is not your current password"),
        ("\nthe second password\n", "send the current one as current_password"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        refused = phalanx("users", "password", "mia")
        assert refused.code == Exit.REFUSED
        assert message in refused.err
    monkeypatch.setattr("sys.stdin", io.StringIO("the first password\nthe second password\n"))
    assert phalanx("users", "password", "mia").code == 0
    monkeypatch.setenv("PHALANX_TOKEN_FILE", admin)
    monkeypatch.setattr("sys.stdin", io.StringIO("a third password\n"))
    assert "mia has a new password" in phalanx("users", "password", "mia").err


def test_a_revoked_token_takes_with_it_those_that_were_made_with_it(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", phalanx("tokens", "add", "maker", "--days", "1").out.strip())
    made = phalanx("tokens", "add", "made")
    refused = phalanx("tokens", "add", "longer", "--days", "2")
    assert refused.code == Exit.REFUSED
    assert "ends no later than the token it is made with" in refused.err
    [maker] = [token for token in phalanx("tokens", "-o", "json").data if token["name"] == "maker"]
    assert f"or when {maker['id']} is revoked" in made.err
    monkeypatch.delenv("PHALANX_TOKEN")
    assert phalanx("tokens", "revoke", maker["id"]).err.strip() == f"revoked token {maker['id']} and 1 made with it"
    monkeypatch.setenv("PHALANX_TOKEN", made.out.strip())
    assert phalanx("jobs").code == Exit.REFUSED


@pytest.mark.parametrize("proxy", ["*", "localhost", "10.0.0.1/8", ""])
def test_a_proxy_is_an_address_or_a_network(phalanx: Phalanx, tmp_path: Path, proxy: str) -> None:
    refused = phalanx("up", "--data", str(tmp_path / "none"), "--proxy", f"10.0.0.7,{proxy}")
    assert refused.code == 1
    assert "--proxy" in refused.err
    assert "expected an address" in refused.err


def test_an_admin_makes_a_token_for_a_user_without_a_password(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = phalanx("users", "add", "robot", "--role", "viewer", "--queue", "research")
    assert "added robot, viewer of research and all below it; `phalanx tokens add NAME --user robot`" in added.err
    token = phalanx("tokens", "add", "ci", "--user", "robot", "--scope", "read").out.strip()
    listed = {each["name"]: each for each in phalanx("tokens", "-o", "json").data if each["user"] == "robot"}
    assert listed["ci"]["scopes"] == ["read"]
    monkeypatch.setenv("PHALANX_TOKEN", token)
    assert phalanx("jobs").code == 0
    assert phalanx("submit", "--queue", "research", "--", "true").code == Exit.REFUSED
    monkeypatch.delenv("PHALANX_TOKEN")
    phalanx("tokens", "revoke", listed["ci"]["id"])
    monkeypatch.setenv("PHALANX_TOKEN", token)
    assert phalanx("jobs").code == Exit.REFUSED


def test_the_policy_alone_is_changed_without_a_cluster_file(phalanx: Phalanx) -> None:
    before = phalanx("apply", "--policy", "sjf", "--dry-run").out.removeprefix("policy: ").split()[0]
    assert phalanx("apply", "--policy", "sjf", "--dry-run").out == f"policy: {before} becomes sjf\n"
    assert phalanx("apply", "--policy", "sjf").code == Exit.REFUSED, "nobody is there to be asked"
    assert phalanx("apply", "--policy", "sjf", "--yes").code == 0
    assert phalanx("apply", "--policy", "sjf").out == "No changes.\n"
    assert phalanx("apply", "--policy", "nonsense", "--yes").code == Exit.REFUSED
    assert phalanx("apply", "--policy", before, "--yes").code == 0
    assert phalanx("apply").code == 2


def test_a_cluster_is_changed_after_its_difference_was_shown(phalanx: Phalanx, tmp_path: Path) -> None:
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    node = "gpus: 4, gpu_type: H100, gpu_memory_gb: 80, cpus: 64, memory_gb: 512"
    before.write_text(f"nodes:\n- {{count: 2, name: n, {node}}}\n")
    after.write_text(f"nodes:\n- {{count: 3, name: n, {node}}}\n")
    shown = phalanx("apply", str(after), "--dry-run", "-o", "json")
    assert shown.code == 0, shown.err
    assert shown.data["changes"]
    assert len(phalanx("nodes", "-o", "name").out.split()) == 2
    assert phalanx("apply", str(after)).code == Exit.REFUSED
    assert phalanx("apply", str(after), "--yes").code == 0
    assert len(phalanx("nodes", "-o", "name").out.split()) == 3
    assert phalanx("apply", str(before), "--yes").code == 0
    assert phalanx("nodes", "-o", "name").out.split() == ["n0", "n1"]


def test_which_of_several_files_is_refused_is_told_by_its_name_and_not_by_an_id_that_nobody_has(
    phalanx: Phalanx, tmp_path: Path
) -> None:
    node = "gpus: 4, gpu_type: H100, gpu_memory_gb: 80, cpus: 64, memory_gb: 512"
    whole, queues, good, bad = (tmp_path / f"{name}.yaml" for name in ("whole", "queues", "good", "bad"))
    whole.write_text(f"nodes:\n- {{count: 2, name: n, {node}}}\n")
    queues.write_text("queues:\n- {name: default}\n- {name: research}\n")
    good.write_text("gpus: 1\ncommand: 'true'\n")
    bad.write_text("gpus: 1\ncommand: 'true'\nqueue: reserch\n")
    assert phalanx("apply", str(queues), "--yes").code == 0
    for verb, option in (("submit", ()), ("plan", ()), ("what-if", ("--job",))):
        for files in ([str(good), str(bad)], [str(bad)]):
            result = phalanx(verb, *(part for file in files for part in (*option, file)))
            assert result.code == Exit.REFUSED
            assert result.err.startswith(
                f"phalanx: {bad}: Unknown queue 'reserch' of the job: did you mean 'research'? Queues: "
            )
    assert phalanx("apply", str(whole), "--yes").code == 0


def test_queues_are_changed_by_a_file_that_has_nothing_else(phalanx: Phalanx, tmp_path: Path) -> None:
    node = "gpus: 4, gpu_type: H100, gpu_memory_gb: 80, cpus: 64, memory_gb: 512"
    whole, queues, wrong = (tmp_path / name for name in ("whole.yaml", "queues.yaml", "wrong.yaml"))
    whole.write_text(f"nodes:\n- {{count: 2, name: n, {node}}}\n")
    queues.write_text("queues:\n- {name: default}\n- {name: research, limit: {gpus: 2}}\n")
    wrong.write_text("queues:\n- {name: default}\n- {name: research, guaranteed: {gpus: 200}}\n")
    shown = phalanx("apply", str(queues), "--dry-run")
    assert (shown.code, shown.out) == (0, "Queues added: default, research\n"), shown.err
    assert phalanx("apply", str(queues), "--yes").code == 0
    assert "research" in phalanx("queues", "-o", "name").out.split()
    assert len(phalanx("nodes", "-o", "name").out.split()) == 2
    refused = phalanx("apply", str(wrong), "--yes")
    assert (refused.code, f"{wrong}:" in refused.err) == (Exit.REFUSED, True)
    assert phalanx("apply", str(whole), "--yes").out == "Queues removed: default, research\n"


def test_a_cluster_file_with_a_mistake_is_refused_with_its_line(phalanx: Phalanx, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes:\n- {count: 2, gpuz: 4}\n")
    refused = phalanx("apply", str(file), "--yes")
    assert refused.code == 1
    assert f"{file}:2" in refused.err


def test_a_debug_bundle_replays_and_its_snapshot_answers_why(phalanx: Phalanx, tmp_path: Path) -> None:
    held = tmp_path / "job.yaml"
    held.write_text("gpus: 1\nbegin: +1h\ncommand: 'true'\n")
    job = phalanx("submit", "-o", "name", str(held)).out.strip()
    assert phalanx("hold", job).code == 0
    file = tmp_path / "bundle.zip"
    taken = phalanx("debug", "bundle", str(file))
    assert taken.code == 0, taken.err
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    replayed = phalanx("replay", "--verify", str(tmp_path / "journal.jsonl"), "-o", "json")
    assert replayed.code == 0, replayed.err
    assert replayed.data["verified"] is True
    told = phalanx("why", job, "--state", str(tmp_path / "snapshot.bin"), "-o", "json")
    assert (told.code, told.data["reason"]) == (0, "held")
    phalanx("cancel", job)


def test_a_debug_bundle_can_be_asked_as_it_is(phalanx: Phalanx, tmp_path: Path) -> None:
    waiting, more = tmp_path / "job.yaml", tmp_path / "more.yaml"
    waiting.write_text("gpus: 1\nbegin: +1h\nduration: 1h\ncommand: 'true'\n")
    more.write_text("name: more\ngang: [{replicas: 2, gpus: 4}]\nduration: 1h\ncommand: 'true'\narray: 0-1\n")
    job = phalanx("submit", "-o", "name", str(waiting)).out.strip()
    bundle = str(tmp_path / "bundle.zip")
    assert phalanx("debug", "bundle", bundle).code == 0
    phalanx("cancel", job)
    replayed = phalanx("replay", "--verify", bundle, "-o", "json")
    assert (replayed.code, replayed.data["verified"]) == (0, True), replayed.err
    told = phalanx("why", job, "--state", bundle, "-o", "json")
    assert (told.code, told.data["reason"]) == (0, "begin_time"), told.err
    futures = phalanx("what-if", "--state", bundle, "--job", str(more), "-o", "json")
    assert futures.code == 0, futures.err
    assert futures.data["what_if"]["jobs"] == futures.data["as_it_is"]["jobs"] + 2
    first, second = futures.data["what_if"]["submitted"]
    assert second["start_ms"] >= first["end_ms"], futures.data["what_if"]


def test_the_end_of_a_journal_is_replayed_from_the_state_before_it(phalanx: Phalanx, tmp_path: Path) -> None:
    from builders import random_run
    from phalanx.engine.fold.snapshot import dump
    from phalanx.engine.state.journal import Journal
    from phalanx.engine.turn import replay

    run = random_run(5, 40)
    lines, middle = list(run.journal.lines()), len(run.journal.records) // 2
    (tmp_path / "start.bin").write_bytes(dump(replay(Journal(run.journal.records[:middle]))))
    (tmp_path / "end.jsonl").write_bytes(b"\n".join(lines[middle:]))
    told = phalanx(
        "replay", "--verify", str(tmp_path / "end.jsonl"), "--from", str(tmp_path / "start.bin"), "-o", "json"
    )
    assert told.code == 0, told.err
    assert told.data["digest"] == str(run.state.digest)
    assert told.data["records"] == len(lines) - middle
    torn = phalanx("replay", str(tmp_path / "end.jsonl"))
    assert (torn.code, "does not follow" in torn.err) == (1, True)


def test_a_list_that_is_watched_is_shown_again_until_it_is_interrupted(phalanx: Phalanx) -> None:
    watching = subprocess.Popen(
        [sys.executable, "-m", "phalanx", "nodes", "--watch"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may have it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert watching.stdout is not None
    heads = 0
    while heads < 2:
        line = watching.stdout.readline()
        assert line, "it ended by itself"
        heads += line.startswith("NAME")
    watching.send_signal(signal.SIGINT)
    assert watching.wait(30) == 130
    watching.communicate()


def test_simulated_nodes_are_not_taken_for_machines(phalanx: Phalanx) -> None:
    told = phalanx("nodes")
    assert told.err.startswith("SIMULATED: 2 nodes are simulated")
    assert "SIMULATED" not in told.out
    assert all(node["simulated"] for node in phalanx("nodes", "-o", "json").data)
    assert phalanx("nodes", "-o", "json").err == ""
    assert "SIMULATED: 2 nodes" in phalanx("top", "--once").out
