"""What verbs say of input that they cannot use: one line that tells what to do, and the documented exit code."""

from __future__ import annotations

import io
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from live import Phalanx, Server, until

from phalanx.cli.exit import Exit

NO_JOB = [
    *(["update", "999999", "--priority", "1"], ["suspend", "999999"], ["resume", "999999"], ["requeue", "999999"]),
    *(["when", "999999"], ["save", "999999"], ["logs", "999999", "--all-ranks"], ["logs", "999999", "--since", "1h"]),
    *(["attach", "999999"], ["forward", "999999", "80"], ["exec", "999999", "--", "true"]),
    *(
        ["when", "x" * 253],
        ["job", "x" * 254],
        ["logs", "名前が長い", "--timestamps"],
        ["attach", "a/b?c=d"],
        ["forward", "", "80"],
    ),
]
WRONG = [
    *(["update", "1", "--priority", "high"], ["update", "1"]),
    *(["history", "--since", "soon"], ["history", "--since", "2999-01-01T00:00Z"], ["history", "--limit", "0"]),
    *(["usage", "--by", "moon"], ["usage", "--since", "x"], ["drain", "n0", "--by", "1h"]),
    ["drain", "n0", "--evict", "--by", "soon"],
    *(["size", "--rate", "fast"], ["logs", "1", "--since", "ten minutes"], ["logs", "1", "--tail", "-1"]),
    *(["logs", "1", "--tail", "many"], ["logs", "1", "--task", "-1"], ["logs", "1", "--all-ranks", "--task", "0"]),
    *(["attach", "1", "--task", "x"], ["attach", "1", "--detach-keys", "ctrl"], ["attach"], ["forward", "1"]),
    *(["forward", "1", "http"], ["forward", "1", "80:99999"], ["forward", "1", "80", "--task", "-1"]),
    *(["submit", "--tasks", "3:1", "--", "true"], ["submit", "--dependency", "after", "--", "true"]),
    *(["submit", "--node-selector", "zone", "--", "true"], ["submit", "--kind", "batch", "--", "true"]),
]
FOREIGN = [
    *(["update", "{job}", "--max-run", "1h"], ["suspend", "{job}"], ["requeue", "{job}"], ["save", "{job}"]),
    *(["attach", "{job}"], ["forward", "{job}", "80"], ["exec", "{job}", "--", "true"], ["drain", "n0", "--evict"]),
]
OVER = [
    *(["update", "{job}", "--priority", "1"], ["suspend", "{job}"], ["requeue", "{job}"], ["save", "{job}"]),
    *(["attach", "{job}"], ["forward", "{job}", "80"], ["exec", "{job}", "--", "true"]),
]

NOT_UTF8 = [
    *(["submit", "--name", "\udcff", "--", "true"], ["submit", "--", "echo", "\udcff"], ["job", "\udcff"]),
    *(["jobs", "--user", "\udcff"], ["update", "1", "--queue", "\udcff"], ["drain", "n\udcff"]),
]


def shown(words: list[str]) -> str:
    return " ".join(words)[:60]


def one_line(err: str) -> str:
    """The only line that a verb said, which is for people."""
    lines = err.rstrip("\n").split("\n")
    assert "Traceback" not in err
    assert len(lines) == 1, err
    assert lines[0].startswith("phalanx: ")
    return lines[0]


@pytest.mark.parametrize("words", NO_JOB, ids=shown)
def test_a_job_that_there_is_not_is_not_found(phalanx: Phalanx, words: list[str]) -> None:
    result = phalanx(*words)
    assert (result.code, result.out) == (Exit.NOT_FOUND, ""), result.err
    assert "no" in one_line(result.err)


@pytest.mark.parametrize("words", WRONG, ids=shown)
def test_what_an_option_does_not_take_is_a_usage_error_that_names_it(phalanx: Phalanx, words: list[str]) -> None:
    result = phalanx(*words)
    assert (result.code, result.out) == (Exit.USAGE, ""), result.err
    assert "Traceback" not in result.err
    assert result.err.rstrip("\n").split("\n")[-1].startswith("Error: ")


@pytest.fixture
def job(phalanx: Phalanx) -> str:
    found = phalanx("jobs", "--all", "--name", "not-yours", "-o", "json").data
    if found:
        return str(found[0]["id"])
    made: str = phalanx("submit", "--name", "not-yours", "-o", "json", "--", "sleep", "600").data["id"]
    until(lambda: phalanx("job", made, "-o", "json").data["state"] == "running")
    phalanx("users", "add", "oscar", "--role", "member")
    return made


def test_a_length_in_no_unit_that_there_is_is_refused_and_changes_nothing(phalanx: Phalanx) -> None:
    pending: str = phalanx("submit", "--gpus", "8", "-o", "json", "--", "true").data["id"]
    before = phalanx("job", pending, "-o", "json").data
    result = phalanx("update", pending, "--duration", "10 parsecs")
    assert (result.code, result.out) == (Exit.REFUSED, ""), result.err
    assert "10 parsecs" in one_line(result.err)
    assert phalanx("job", pending, "-o", "json").data["spec"] == before["spec"]
    phalanx("cancel", pending)


def test_what_options_made_of_a_job_has_no_place_in_a_file(phalanx: Phalanx) -> None:
    result = phalanx("submit", "--array", "3-1", "--", "true")
    told = "phalanx: key 'array': expected a range that goes up in steps of at least 1, got '3-1'"
    assert (result.code, one_line(result.err)) == (Exit.REFUSED, told)


@pytest.mark.parametrize("words", FOREIGN, ids=shown)
def test_another_users_job_is_refused(
    phalanx: Phalanx, job: str, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    token = phalanx("tokens", "add", "of-oscar", "--user", "oscar").out.strip()
    monkeypatch.setenv("PHALANX_TOKEN", token)
    result = phalanx(*(word.format(job=job) for word in words))
    assert (result.code, result.out) == (Exit.REFUSED, ""), result.err
    one_line(result.err)


@pytest.mark.parametrize("words", [["attach"], ["forward", "80"], ["exec"]], ids=shown)
def test_a_task_that_the_job_does_not_have_is_not_found(phalanx: Phalanx, job: str, words: list[str]) -> None:
    result = phalanx(words[0], job, *words[1:], "--task", "7")
    assert (result.code, result.out) == (Exit.NOT_FOUND, ""), result.err
    assert one_line(result.err) == f"phalanx: job {job} has no task 7: it has task 0"


@pytest.mark.parametrize("words", NOT_UTF8, ids=ascii)
def test_words_that_are_no_text_are_a_usage_error(phalanx: Phalanx, words: list[str]) -> None:
    result = phalanx(*words)
    assert (result.code, result.out) == (Exit.USAGE, ""), result.err
    told = one_line(result.err)
    assert (told.startswith("phalanx: argument '"), told.endswith("\\xff': expected UTF-8 text")) == (True, True)


@pytest.mark.parametrize("token", ["two\nlines", "名前", "two words"], ids=ascii)
def test_a_token_that_can_be_none_is_named(phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", token)
    result = phalanx("jobs")
    assert (result.code, result.out) == (Exit.ERROR, "")
    assert one_line(result.err).startswith("phalanx: PHALANX_TOKEN: expected ")


def test_a_token_that_is_not_valid_is_told_with_where_it_comes_from(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_TOKEN", "phx_000000000000_none")
    result = phalanx("jobs")
    assert (result.code, result.out) == (Exit.REFUSED, "")
    assert "PHALANX_TOKEN is set" in one_line(result.err)


def test_a_wrong_password_does_not_advise_to_log_in(
    phalanx: Phalanx, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("not the password\n"))
    result = phalanx("login", server.url, "--user", "admin")
    assert (result.code, one_line(result.err)) == (Exit.REFUSED, "phalanx: no such user and password")


def test_a_token_to_revoke_that_there_is_not_is_not_found(phalanx: Phalanx) -> None:
    for token in ("abc", "0123456789ab", "x/y"):
        result = phalanx("tokens", "revoke", token)
        assert (result.code, f"there is no token '{token}'" in one_line(result.err)) == (Exit.NOT_FOUND, True)


def test_what_a_sentence_says_of_a_state_is_what_tables_show(phalanx: Phalanx) -> None:
    pending = phalanx("submit", "-o", "json", "--begin", "+1h", "--", "true").data["id"]
    assert one_line(phalanx("requeue", pending).err).startswith(f"phalanx: job {pending} is pending: ")
    assert phalanx("wait", pending, "--timeout", "0s").err == f"job {pending}: pending\n"
    phalanx("cancel", pending)
    done = phalanx("submit", "-o", "json", "--wait", "--", "true").data["id"]
    told = "has succeeded: submit it again; only a job that has started and is not over can be requeued"
    assert one_line(phalanx("requeue", done).err) == f"phalanx: job {done} {told}"
    assert one_line(phalanx("update", done, "--priority", "1").err).startswith(f"phalanx: job {done} has succeeded: ")
    assert phalanx("logs", done).err == f"nothing was printed; job {done} has succeeded\n"
    assert "has had 1 attempt, not 9" in phalanx("logs", done, "--attempt", "9").err


@pytest.mark.parametrize("words", OVER, ids=shown)
def test_a_job_that_is_over_is_refused(phalanx: Phalanx, job: str, words: list[str]) -> None:
    phalanx("cancel", job)
    phalanx("wait", job)
    result = phalanx(*(word.format(job=job) for word in words))
    assert (result.code, result.out) == (Exit.REFUSED, ""), result.err
    assert job in one_line(result.err)


@pytest.mark.parametrize("words", [*NO_JOB[:11], ["usage"], ["history"], ["whoami"]], ids=shown)
def test_a_server_that_is_gone_is_said_to_be(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", "http://127.0.0.1:1")
    result = phalanx(*words)
    assert (result.code, result.out) == (Exit.UNREACHABLE, ""), result.err
    assert "start a server with `phalanx up`" in one_line(result.err)


def test_a_state_that_there_is_not_is_answered_with_those_that_tables_show(phalanx: Phalanx) -> None:
    result = phalanx("jobs", "--state", "nope")
    assert (result.code, result.out) == (Exit.REFUSED, "")
    assert "'nope' (there is: pending, starting, running, " in one_line(result.err)
    assert "waiting" not in result.err


@pytest.mark.parametrize("words", [["attach"], ["forward", "80"], ["exec", "--", "true"]], ids=shown)
def test_a_task_is_entered_only_while_it_runs(phalanx: Phalanx, words: list[str]) -> None:
    held = phalanx("submit", "-o", "json", "--begin", "+1h", "--", "true").data["id"]
    result = phalanx(words[0], held, *words[1:])
    assert (result.code, result.out) == (Exit.REFUSED, "")
    assert one_line(result.err) == f"phalanx: job {held} is not running (pending): this needs a running job"
    phalanx("cancel", held)


class _OtherProgram(BaseHTTPRequestHandler):
    """A program at the address that has a page for everything."""

    answer = b"<html></html>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


class _OtherData(_OtherProgram):
    answer = b'{"status": "ok"}'


OTHERS = [
    *((_OtherProgram, words) for words in (["jobs"], ["why", "1"], ["logs", "1"], ["exec", "1", "--", "true"])),
    *((_OtherData, words) for words in (["jobs"], ["why", "1"], ["job", "1"], ["nodes"], ["submit", "--", "true"])),
]


@pytest.mark.parametrize(("program", "words"), OTHERS)
def test_an_address_of_another_program_is_told(
    phalanx: Phalanx, monkeypatch: pytest.MonkeyPatch, program: type[_OtherProgram], words: list[str]
) -> None:
    with HTTPServer(("127.0.0.1", 0), program) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        monkeypatch.setenv("PHALANX_ADDR", f"http://127.0.0.1:{other.server_port}")
        result = phalanx(*words)
        other.shutdown()
    assert (result.code, result.out) == (Exit.ERROR, ""), result.err
    assert one_line(result.err).endswith("which no phalanx would answer; is PHALANX_ADDR right?")


def test_https_to_a_server_without_it_is_told(
    phalanx: Phalanx, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHALANX_ADDR", server.url.replace("http:", "https:"))
    result = phalanx("jobs")
    assert (result.code, result.out) == (Exit.UNREACHABLE, "")
    assert one_line(result.err).endswith("does not speak HTTPS; is it http://…?")
