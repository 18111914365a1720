"""Sessions of browsers: how they are opened and end, and that no other site can use them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from people import person
from running import Server, eventually
from sqlalchemy import Connection

from phalanx.server.accounts import ledger
from phalanx.server.accounts.sessions import IDLE_MS, MOST_MS, SESSIONS_MAX, csrf_of, end_ms, is_csrf_of, is_due
from phalanx.server.accounts.tokens import new_token
from phalanx.server.loop.wire import AddToken, PutUser, RenewSession
from phalanx.server.refusal import Refusal
from phalanx.server.store.accounts import list_tokens
from phalanx.server.store.database import open_database

PASSWORD = "correct horse battery"
JOB = {"command": "true", "gpus": 1, "begin": "+10h"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("sessions") / "data"
    server = Server(data, "--backend", "rehearsal", "--nodes", "1", "--gpus", "8", "--workers", "2").start()
    server.client.post("/users", json={"name": "ada", "password": PASSWORD}).raise_for_status()
    server.client.put("/users/ada/roles/red", json={"role": "member"}).raise_for_status()
    yield server
    server.stop()


@pytest.fixture
def browser(server: Server) -> Iterator[httpx2.Client]:
    """A browser in which nobody has logged in."""
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as client:
        yield client


def log_in(browser: httpx2.Client, **with_what: str) -> dict[str, Any]:
    found: dict[str, Any] = browser.post("/session", json=with_what).raise_for_status().json()
    return found


def log_in_as_ada(browser: httpx2.Client) -> dict[str, str]:
    """Logs in; the header that changes need."""
    return {"X-CSRF-Token": log_in(browser, user="ada", password=PASSWORD)["csrf"]}


def test_a_password_opens_a_session_that_scripts_cannot_read(browser: httpx2.Client) -> None:
    response = browser.post("/session", json={"user": "ada", "password": PASSWORD})
    told = response.json()
    assert (told["user"], told["role"], told["roles"]) == ("ada", "member", [{"queue": "red", "role": "member"}])
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert told["csrf"] not in cookie
    assert browser.get("/session").json() == told
    assert browser.get("/me").json()["user"] == "ada"
    assert 0 < told["until_ms"] - told["expires_ms"] <= MOST_MS - IDLE_MS


def test_without_a_session_a_page_is_told_so_and_not_refused(browser: httpx2.Client) -> None:
    told = browser.get("/session")
    assert told.status_code == 200
    assert told.json()["user"] is None
    assert told.json()["csrf"] is None
    assert browser.delete("/session").status_code == 401


def test_a_change_needs_what_only_our_own_page_knows(browser: httpx2.Client) -> None:
    header = log_in_as_ada(browser)
    job = {**JOB, "queue": "red"}
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "0" * 64}, {"X-CSRF-Token": b"\xff\xfe"}):
        refused = browser.post("/jobs", json=job, headers=wrong)  # type: ignore[arg-type]
        assert refused.status_code == 403
        assert "X-CSRF-Token" in refused.json()["message"]
    assert browser.request("DELETE", "/session").status_code == 403
    assert browser.post("/jobs", json=job, headers=header).status_code == 201
    assert browser.post("/jobs", json={**JOB, "queue": "blue"}, headers=header).status_code == 403


def test_the_header_of_one_session_is_worthless_in_another(server: Server, browser: httpx2.Client) -> None:
    log_in_as_ada(browser)
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as another:
        header = log_in_as_ada(another)
    assert browser.post("/jobs", json={**JOB, "queue": "red"}, headers=header).status_code == 403


@pytest.mark.parametrize(
    "sign",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing(server: Server, browser: httpx2.Client, sign: dict[str, str]) -> None:
    header = log_in_as_ada(browser)
    assert browser.post("/jobs", json={**JOB, "queue": "red"}, headers={**header, **sign}).status_code == 403
    body = {"user": "ada", "password": PASSWORD}
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as another:
        refused = another.post("/session", json=body, headers=sign)
        assert refused.status_code == 403
        assert "Set-Cookie" not in refused.headers
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert browser.post("/jobs", json={**JOB, "queue": "red"}, headers={**header, **own}).status_code == 201


def test_a_form_of_another_site_cannot_log_anybody_in(browser: httpx2.Client) -> None:
    form = browser.post("/session", data={"user": "ada", "password": PASSWORD})
    assert form.status_code == 422
    text = '{"user": "ada", "password": "' + PASSWORD + '"}'
    plain = browser.post("/session", content=text, headers={"Content-Type": "text/plain"})
    assert plain.status_code == 422


def test_logging_out_ends_the_session_on_the_server(server: Server, browser: httpx2.Client) -> None:
    header = log_in_as_ada(browser)
    kept = {"Cookie": f"phalanx_session={browser.cookies['phalanx_session']}"}
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers=kept, timeout=60) as thief:
        assert thief.get("/me").status_code == 200
        with thief.stream("GET", "/events") as stream:
            assert browser.delete("/session", headers=header).status_code == 204
            with pytest.raises(httpx2.RemoteProtocolError):
                stream.read()
        assert thief.get("/me").status_code == 401
        assert thief.get("/session").json()["user"] is None
        assert thief.post("/jobs", json={**JOB, "queue": "red"}, headers=header).status_code == 401
    assert browser.get("/session").json()["user"] is None
    assert not browser.cookies


def test_a_cookie_that_was_planted_before_the_log_in_is_not_the_session(server: Server, browser: httpx2.Client) -> None:
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as mallory:
        log_in(mallory, token=person(server, "member of red").client.headers["Authorization"].split(" ")[1])
        planted = mallory.cookies["phalanx_session"]
        browser.cookies.set("phalanx_session", planted)
        answer = browser.post("/session", json={"user": "ada", "password": PASSWORD})
        assert answer.json()["user"] == "ada"
        given = answer.headers["Set-Cookie"].split(";")[0].split("=")[1]
        assert given != planted
        assert mallory.get("/me").status_code == 401, "the session that the browser had before has ended"


def test_a_session_is_no_token_and_a_token_no_session(server: Server, browser: httpx2.Client) -> None:
    log_in_as_ada(browser)
    bearer = {"Authorization": f"Bearer {browser.cookies['phalanx_session']}"}
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as stranger:
        assert stranger.get("/me", headers=bearer).status_code == 401
        assert stranger.post("/session", json={"token": browser.cookies["phalanx_session"]}).status_code == 401
        token = (server.data / "admin.token").read_text().strip()
        assert stranger.get("/me", headers={"Cookie": f"phalanx_session={token}"}).status_code == 401
    answer = server.client.delete("/session")
    assert answer.status_code == 409
    assert "/tokens/" in answer.json()["message"]


def test_a_session_ends_with_the_token_it_was_opened_with(server: Server, browser: httpx2.Client) -> None:
    made = server.client.post("/tokens", json={"name": "short", "scopes": ["read"], "ttl_s": 600}).json()
    told = log_in(browser, token=made["token"])
    assert told["scopes"] == ["read"]
    assert told["until_ms"] == told["expires_ms"] == made["expires_ms"]
    server.client.delete(f"/tokens/{made['id']}").raise_for_status()
    assert browser.get("/me").status_code == 401


def test_sessions_are_listed_among_the_tokens_and_can_be_ended_there(server: Server, browser: httpx2.Client) -> None:
    header = log_in_as_ada(browser)
    with httpx2.Client(base_url=f"{server.url}/api/v1", timeout=60) as laptop:
        log_in_as_ada(laptop)
        sessions = [each for each in browser.get("/tokens").json()["items"] if each["session_until_ms"]]
        newest = sessions[-1]["id"]
        assert browser.delete(f"/tokens/{newest}", headers=header).status_code == 200
        assert laptop.get("/me").status_code == 401
    assert browser.get("/me").status_code == 200


def test_a_token_that_is_made_in_a_browser_outlives_the_session(server: Server, browser: httpx2.Client) -> None:
    header = log_in_as_ada(browser)
    made = browser.post("/tokens", json={"name": "ci"}, headers=header).json()
    assert made["parent"] is None
    forever = browser.post("/tokens", json={"name": "ci", "ttl_s": None}, headers=header)
    assert forever.status_code == 403
    browser.delete("/session", headers=header)
    assert server.as_user(made["token"]).get("/me").status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "ada"},
        {"password": "x"},
        {"user": "ada", "password": "x", "token": "y"},
        {"token": 7},
        [],
        {"x": 1},
    ],
)
def test_a_log_in_with_anything_else_is_refused_in_one_line(browser: httpx2.Client, body: Any) -> None:
    refused = browser.post("/session", json=body)
    assert refused.status_code == 422
    assert "\n" not in refused.json()["message"]
    assert "Set-Cookie" not in refused.headers


def test_a_name_with_line_breaks_adds_no_header(browser: httpx2.Client) -> None:
    refused = browser.post("/session", json={"user": "a\r\nSet-Cookie: x=1", "password": "y"})
    assert refused.status_code == 401
    assert "Set-Cookie" not in refused.headers


def test_wrong_passwords_are_throttled(server: Server, browser: httpx2.Client) -> None:
    server.client.post("/users", json={"name": "bob", "password": PASSWORD}).raise_for_status()
    wrong = {"user": "bob", "password": "wrong"}
    codes = [browser.post("/session", json=wrong).status_code for _ in range(25)]
    assert codes[0] == 401
    assert codes[-1] == 429, "10 a minute at each of two workers"


def test_a_session_that_is_used_is_renewed(server: Server, browser: httpx2.Client) -> None:
    told = log_in(browser, user="ada", password=PASSWORD)
    with sqlite3.connect(server.data / "phalanx.db") as store:
        store.execute("UPDATE tokens SET expires_ms = expires_ms - 3600000 WHERE expires_ms = ?", (told["expires_ms"],))
    store.close()
    eventually(lambda: browser.get("/session").json()["expires_ms"] < told["expires_ms"] - 1_000_000)
    eventually(lambda: browser.get("/session").json()["expires_ms"] >= told["expires_ms"])
    assert browser.get("/session").json()["until_ms"] == told["until_ms"]


def test_a_session_that_was_not_used_has_ended(server: Server, browser: httpx2.Client) -> None:
    header = log_in_as_ada(browser)
    with sqlite3.connect(server.data / "phalanx.db") as store:
        store.execute("UPDATE tokens SET expires_ms = 1 WHERE session_until_ms IS NOT NULL")
    store.close()
    eventually(lambda: browser.get("/me").status_code == 401)
    assert browser.post("/jobs", json=JOB, headers=header).status_code == 401
    assert browser.get("/session").json()["user"] is None


def test_every_answer_has_the_headers_that_keep_other_sites_out(server: Server, browser: httpx2.Client) -> None:
    for path in (server.url, "/session", "/nowhere", f"{server.url}/healthz", f"{server.url}/web/style.css"):
        headers = browser.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        # Files of the page are the same for everybody: a browser may keep them if it asks whether they are new.
        is_file = path == server.url or "/web/" in path
        assert headers["Cache-Control"] in (("no-store", "no-cache") if is_file else ("no-store",))
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Connection]:
    database = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    with database.writing() as connection:
        ledger.change(connection, PutUser("ada", new=True), 0)
        yield connection
    database.close()


def opened(store: Connection, now: int) -> tuple[str, str]:
    """A session that was opened at a moment: its id and what is kept of its secret."""
    token = new_token()
    terms = ("read", end_ms(now, now + MOST_MS), None, now + MOST_MS)
    ledger.change(store, AddToken(token.id, "ada", "browser", token.digest, *terms), now)
    return token.id, token.digest


def test_a_session_ends_when_it_is_idle_and_at_last_however_much_it_is_used(store: Connection) -> None:
    session, digest = opened(store, 0)
    assert ledger.account_of_digest(store, digest, IDLE_MS - 1) is not None
    assert ledger.account_of_digest(store, digest, IDLE_MS) is None
    for hour in range(1, 12):
        ledger.change(store, RenewSession(session), hour * 3_600_000)
    assert ledger.account_of_digest(store, digest, MOST_MS - 1) is not None
    assert ledger.account_of_digest(store, digest, MOST_MS) is None
    with pytest.raises(Refusal):
        ledger.change(store, RenewSession(session), MOST_MS)


def test_a_session_that_has_ended_is_not_renewed_and_no_token_is(store: Connection) -> None:
    session, digest = opened(store, 0)
    with pytest.raises(Refusal):
        ledger.change(store, RenewSession(session), IDLE_MS)
    assert ledger.account_of_digest(store, digest, IDLE_MS) is None
    token = new_token()
    ledger.change(store, AddToken(token.id, "ada", "t", token.digest, "read", 10), 0)
    with pytest.raises(Refusal):
        ledger.change(store, RenewSession(token.id), 5)


def test_one_session_too_many_ends_the_oldest_and_those_long_over_are_forgotten(store: Connection) -> None:
    digests = [opened(store, number)[1] for number in range(SESSIONS_MAX + 3)]
    valid = [ledger.account_of_digest(store, digest, 100) is not None for digest in digests]
    assert valid == [False] * 3 + [True] * SESSIONS_MAX
    ledger.forget_sessions(store, IDLE_MS + 10)
    assert len(list_tokens(store)) == SESSIONS_MAX + 3 - 10


def test_a_session_is_renewed_now_and_then_only() -> None:
    assert not is_due(1_000, IDLE_MS, MOST_MS)
    assert is_due(400_000, IDLE_MS, MOST_MS)
    assert not is_due(MOST_MS - 10, MOST_MS, MOST_MS), "it cannot last longer"


def test_what_a_page_sends_follows_from_its_session_alone() -> None:
    assert is_csrf_of("a", csrf_of("a"))
    assert not is_csrf_of("b", csrf_of("a"))
    assert not is_csrf_of("a", "")
    assert not is_csrf_of("a", "☃")
