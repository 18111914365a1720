"""Tokens and log-in: no token gives more than it has, none outlives its maker, and passwords cannot be guessed."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from running import Server, eventually

from phalanx.server.accounts import passwords
from phalanx.server.accounts.throttle import (
    ADDRESS_FAILURES_MAX,
    USER_FAILURES_MAX,
    WINDOW_S,
    FailureCount,
    FailureThrottle,
)

REHEARSAL = ("--backend", "rehearsal", "--nodes", "1", "--gpus", "8")
PASSWORD = "correct horse battery"
numbers = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server behind a proxy on this machine, so that each test can come from an address of its own."""
    started = Server(tmp_path_factory.mktemp("tokens"), *REHEARSAL, "--proxy", "127.0.0.1").start()
    yield started
    started.stop()


@pytest.fixture
def address() -> str:
    """An address that no other test has."""
    return f"192.0.2.{next(numbers)}"


@pytest.fixture
def user(server: Server) -> str:
    """A root admin with a password: what a token of theirs lacks, it lacks by its scopes."""
    name = f"user-{next(numbers)}"
    server.client.post("/users", json={"name": name, "password": PASSWORD}).raise_for_status()
    server.client.put(f"/users/{name}/roles/-", json={"role": "admin"}).raise_for_status()
    return name


def token(client: httpx2.Client, **body: Any) -> dict[str, Any]:
    return dict(client.post("/tokens", json={"name": "test", **body}).raise_for_status().json())


def log_in(
    server: Server, user: str, password: str = PASSWORD, address: str = "192.0.2.250", **more: Any
) -> httpx2.Response:
    body = {"user": user, "password": password, **more}
    return httpx2.post(f"{server.url}/api/v1/login", json=body, headers={"X-Forwarded-For": address}, timeout=60)


def audited(server: Server, user: str, verb: str) -> list[dict[str, Any]]:
    items = server.client.get("/audit", params={"user": user}).raise_for_status().json()["items"]
    return [entry for entry in items if entry["verb"] == verb]


def test_a_token_without_admin_scope_does_not_get_it_by_a_new_password(server: Server, user: str) -> None:
    weak = server.as_user(token(server.client, user=user, scopes=["read", "write"])["token"])
    refused = weak.patch(f"/users/{user}", json={"password": "chosen by a thief"})
    assert refused.status_code == 403
    assert "current_password" in refused.json()["message"]
    assert log_in(server, user, "chosen by a thief").status_code == 401
    assert log_in(server, user).status_code == 201


def test_a_user_changes_their_password_with_the_current_one(server: Server, user: str) -> None:
    weak = server.as_user(token(server.client, user=user, scopes=["read", "write"])["token"])
    body = {"password": "another long one", "current_password": PASSWORD}
    weak.patch(f"/users/{user}", json=body).raise_for_status()
    assert log_in(server, user).status_code == 401
    assert log_in(server, user, "another long one").status_code == 201


def test_an_admin_too_needs_the_current_password_for_their_own(server: Server, user: str) -> None:
    strong = server.as_user(token(server.client, user=user, scopes=["read", "write", "admin"])["token"])
    assert strong.patch(f"/users/{user}", json={"password": "another long one"}).status_code == 403


def test_a_wrong_current_password_is_refused_audited_and_counted(server: Server, user: str, address: str) -> None:
    client = server.as_user(token(server.client, user=user, scopes=["read", "write"])["token"])
    client.headers["X-Forwarded-For"] = address
    body = {"password": "another long one", "current_password": "a guess"}
    for _ in range(USER_FAILURES_MAX):
        refused = client.patch(f"/users/{user}", json=body)
        assert refused.status_code == 403
        assert "current_password" in refused.json()["message"]
    entries = audited(server, user, "confirm password")
    assert [(entry["outcome"], entry["origin"], entry["target"]) for entry in entries] == [
        ("unauthenticated", address, user)
    ] * USER_FAILURES_MAX
    throttled = client.patch(f"/users/{user}", json={**body, "current_password": PASSWORD})
    assert throttled.status_code == 429
    assert log_in(server, user).status_code == 429, "a log-in is counted with it"


def test_a_first_password_needs_a_token_of_admin_scope_or_an_admin(server: Server) -> None:
    server.client.post("/users", json={"name": "bare"}).raise_for_status()
    weak, strong = (
        server.as_user(token(server.client, user="bare", scopes=scopes)["token"])
        for scopes in (["read", "write"], ["read", "write", "admin"])
    )
    refused = weak.patch("/users/bare", json={"password": "a first password"})
    assert refused.status_code == 403
    assert "scope admin" in refused.json()["message"]
    strong.patch("/users/bare", json={"password": "a first password"}).raise_for_status()
    server.client.patch("/users/bare", json={"password": "set by an admin"}).raise_for_status()
    assert log_in(server, "bare", "set by an admin").status_code == 201


def test_only_an_admin_sets_the_password_of_another(server: Server, user: str) -> None:
    server.client.post("/users", json={"name": "member", "password": PASSWORD}).raise_for_status()
    member = server.as_user(token(server.client, user="member", scopes=["read", "write", "admin"])["token"])
    weak = server.as_user(token(server.client, user=user, scopes=["read", "write"])["token"])
    for client in (member, weak):
        body = {"password": "another long one", "current_password": PASSWORD}
        assert client.patch("/users/admin", json=body).status_code == 403


def test_a_log_in_has_the_scopes_it_asks_for_and_no_more(server: Server, user: str) -> None:
    made = log_in(server, user, scopes=["read"]).raise_for_status().json()
    assert made["scopes"] == ["read"]
    reading = server.as_user(made["token"])
    assert reading.get("/me").json()["scopes"] == ["read"]
    assert reading.get("/users").status_code == 403
    assert reading.post("/tokens", json={"name": "more", "scopes": ["read"]}).status_code == 403
    assert log_in(server, user).json()["scopes"] == ["read", "write", "admin"]
    assert log_in(server, user, scopes=["everything"]).status_code == 422
    assert log_in(server, user, scopes=[]).status_code == 422


def test_a_log_in_never_may_more_than_its_user(server: Server) -> None:
    server.client.post("/users", json={"name": "guest", "password": PASSWORD}).raise_for_status()
    guest = server.as_user(log_in(server, "guest", scopes=["read", "write", "admin"]).json()["token"])
    assert guest.get("/users").status_code == 403
    assert guest.post("/jobs", json={"command": "true"}).status_code == 403


def test_a_session_cookie_keeps_the_scopes_of_its_token(server: Server, user: str) -> None:
    narrow = log_in(server, user, scopes=["write"]).json()["token"]
    with httpx2.Client(base_url=f"{server.url}/api/v1") as browser:
        assert browser.post("/session", json={"token": narrow}).json()["scopes"] == ["write"]
        assert browser.get("/me").json()["scopes"] == ["write"]
        assert browser.get("/users").status_code == 403


def test_a_token_ends_no_later_than_the_one_it_is_made_with(server: Server, user: str) -> None:
    parent = log_in(server, user, ttl_s=3600).json()
    client = server.as_user(parent["token"])
    assert token(client)["expires_ms"] == parent["expires_ms"], "the default is clipped"
    assert token(client, ttl_s=60)["expires_ms"] < parent["expires_ms"]
    for ttl_s in (7200, None):
        refused = client.post("/tokens", json={"name": "longer", "ttl_s": ttl_s})
        assert refused.status_code == 403
        ends = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(parent["expires_ms"] / 1000))
        assert ends in refused.json()["message"]


def test_a_token_is_revoked_with_the_one_it_was_made_with(server: Server, user: str) -> None:
    parent = log_in(server, user).json()
    child = token(server.as_user(parent["token"]), scopes=["read", "write"])
    grandchild = token(server.as_user(child["token"]))
    server.client.post("/users", json={"name": "robot"})
    foreign = token(server.as_user(parent["token"]), user="robot")
    other = log_in(server, user).json()
    clients = [server.as_user(each["token"]) for each in (parent, child, grandchild, foreign)]
    assert [client.get("/me").status_code for client in clients] == [200] * 4

    revoked = server.client.delete(f"/tokens/{parent['id']}").raise_for_status().json()
    assert revoked == {"id": parent["id"], "revoked": 4}
    assert [client.get("/me").status_code for client in clients] == [401] * 4
    assert server.as_user(other["token"]).get("/me").status_code == 200
    [entry] = server.client.get("/audit", params={"target": parent["id"], "limit": 1}).json()["items"]
    assert (entry["verb"], entry["detail"]) == ("revoke token", "and 3 made with it")


def test_tokens_are_listed_with_the_one_they_were_made_with(server: Server, user: str) -> None:
    parent = log_in(server, user).json()
    child = token(server.as_user(parent["token"]))
    listed = {each["id"]: each["parent"] for each in server.as_user(parent["token"]).get("/tokens").json()["items"]}
    assert (listed[parent["id"]], listed[child["id"]]) == (None, parent["id"])
    assert (parent["parent"], child["parent"]) == (None, parent["id"])


def test_a_token_ends_with_the_account_of_its_maker(server: Server, user: str) -> None:
    server.client.post("/users", json={"name": "program"}).raise_for_status()
    parent = log_in(server, user).json()
    made = server.as_user(token(server.as_user(parent["token"]), user="program")["token"])
    server.client.patch(f"/users/{user}", json={"disabled": True}).raise_for_status()
    assert made.get("/me").status_code == 401
    server.client.patch(f"/users/{user}", json={"disabled": False}).raise_for_status()
    assert made.get("/me").status_code == 200
    server.client.delete(f"/users/{user}").raise_for_status()
    assert made.get("/me").status_code == 401


def test_a_token_whose_ancestor_is_not_in_force_is_not_valid_whatever_the_store_says_of_itself(
    server: Server, user: str
) -> None:
    ends_ms = int(time.time() * 1000) - 1
    for column, value in (("expires_ms", ends_ms), ("revoked_ms", ends_ms)):
        parent = log_in(server, user).json()
        child = token(server.as_user(parent["token"]), scopes=["read", "write"])
        grandchild = server.as_user(token(server.as_user(child["token"]))["token"])
        with sqlite3.connect(server.data / "phalanx.db") as store:
            store.execute(f"UPDATE tokens SET {column} = ? WHERE id = ?", (value, parent["id"]))
        store.close()
        assert grandchild.get("/me").status_code == 401
        assert server.as_user(child["token"]).post("/tokens", json={"name": "more"}).status_code == 401


def test_a_chain_of_tokens_that_make_tokens_has_an_end(server: Server, user: str) -> None:
    made = log_in(server, user).json()
    for _ in range(15):
        made = token(server.as_user(made["token"]))
    refused = server.as_user(made["token"]).post("/tokens", json={"name": "one more"})
    assert refused.status_code == 403
    assert "generation 16" in refused.json()["message"]


def test_a_forwarded_address_is_ignored_unless_its_proxy_is_named(folder: Path) -> None:
    own = Server(folder, *REHEARSAL).start()
    try:
        forged = {"X-Forwarded-For": "203.0.113.9"}
        own.client.post("/users", json={"name": "ada"}, headers=forged).raise_for_status()
        [entry] = own.client.get("/audit", params={"target": "ada"}).json()["items"]
        assert entry["origin"] == "127.0.0.1"
    finally:
        own.stop()


def test_a_named_proxy_is_believed(server: Server, address: str) -> None:
    headers = {"X-Forwarded-For": f"203.0.113.9, {address}"}
    server.client.post("/users", json={"name": "proxied"}, headers=headers).raise_for_status()
    [entry] = server.client.get("/audit", params={"target": "proxied"}).json()["items"]
    assert entry["origin"] == address, "what the proxy has added itself, not what the caller claims before it"


def test_a_failed_log_in_is_audited(server: Server, user: str, address: str) -> None:
    for given in (user, "no\nsuch\x00user"):
        refused = log_in(server, given, "a guess", address)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        [entry] = audited(server, given.replace("\n", "?").replace("\x00", "?"), "log in")
        assert (entry["outcome"], entry["origin"], entry["token"]) == ("unauthenticated", address, "")


def test_a_user_name_is_throttled_after_so_many_failures_and_other_users_are_not(
    server: Server, user: str, address: str
) -> None:
    for _ in range(USER_FAILURES_MAX):
        assert log_in(server, user, "a guess", address).status_code == 401
    throttled = log_in(server, user, PASSWORD, address)
    assert throttled.status_code == 429
    assert 1 <= int(throttled.headers["Retry-After"]) <= WINDOW_S
    server.client.post("/users", json={"name": "bystander", "password": PASSWORD}).raise_for_status()
    assert log_in(server, "bystander", PASSWORD, "198.51.100.1").status_code == 201


def test_an_address_is_throttled_after_so_many_failures_whatever_names_it_tries(server: Server, address: str) -> None:
    for number in range(ADDRESS_FAILURES_MAX):
        assert log_in(server, f"made-up-{number}", "a guess", address).status_code == 401
    assert log_in(server, "another", "a guess", address).status_code == 429
    assert log_in(server, "another", "a guess", "198.51.100.2").status_code == 401


def test_a_flood_of_log_ins_is_bounded_and_slows_no_other_user(server: Server, user: str) -> None:
    hash_s = max(seconds_of(lambda: passwords.hashed(PASSWORD)) for _ in range(3))
    strangers = [server.as_user("none") for _ in range(40)]
    body = {"user": user, "password": PASSWORD}
    with ThreadPoolExecutor(40) as crowd:
        asked = [crowd.submit(stranger.post, "/login", json=body) for stranger in strangers]
        looks_s = []
        while not all(each.done() for each in asked):
            looks_s.append(seconds_of(lambda: server.client.get("/jobs").raise_for_status()))
    answers = Counter(each.result().status_code for each in asked)
    assert set(answers) == {201, 429}
    assert answers[429] >= 10
    assert all("Retry-After" in each.result().headers for each in asked if each.result().status_code == 429)
    looks_s.sort()
    assert looks_s[9 * len(looks_s) // 10] < hash_s
    assert looks_s[-1] < hash_s + 1.0, "the machine may have other work too"
    assert eventually(lambda: log_in(server, user).status_code == 201), "afterwards there is room again"


def seconds_of(work: Any) -> float:
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


class Clock:
    """A clock that is set."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_throttled_name_may_try_again_when_the_window_has_passed() -> None:
    clock = Clock()
    throttle = FailureThrottle(clock)
    for _ in range(USER_FAILURES_MAX):
        assert throttle.pause_s("ada", "10.0.0.1") == 0
        throttle.add("ada", "10.0.0.1")
        clock.now_s += 1
    assert throttle.pause_s("ada", "10.0.0.2") == WINDOW_S - USER_FAILURES_MAX
    assert throttle.pause_s("bob", "10.0.0.1") == 0
    clock.now_s += WINDOW_S - USER_FAILURES_MAX
    assert throttle.pause_s("ada", "10.0.0.2") == 0
    throttle.add("ada", "10.0.0.2")
    assert throttle.pause_s("ada", "10.0.0.2") == 1, "the window slides: the second failure is a second younger"


def test_the_addresses_of_one_ipv6_network_are_throttled_together() -> None:
    throttle = FailureThrottle(Clock())
    for number in range(ADDRESS_FAILURES_MAX):
        throttle.add(f"user-{number}", f"2001:db8::{number + 1:x}")
    assert throttle.pause_s("ada", "2001:db8::ffff") == WINDOW_S
    assert throttle.pause_s("ada", "2001:db8:0:1::1") == 0
    assert throttle.pause_s("ada", "a name") == 0


def test_the_table_of_failures_is_bounded_and_forgets_the_oldest() -> None:
    failures = FailureCount(1, Clock(), names_max=100)
    for number in range(1000):
        failures.add(str(number))
    assert len(failures) == 100
    assert failures.pause_s("999") == WINDOW_S
    assert failures.pause_s("0") == 0
