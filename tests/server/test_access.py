"""Who may do what where: every role at every route, and what of others' jobs is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from running import Server

from phalanx.server.accounts.roles import ALL_SCOPES, Account, Grant, Role, Scope
from phalanx.server.accounts.tokens import attempt_token, digest_of, new_token, read_attempt_token


@dataclass
class Site:
    """A server with two tenants: `red` has a job of ada's and of bob's, `blue` one of eve's."""

    server: Server
    clients: dict[str, httpx2.Client]
    jobs: dict[str, str]


ROLES = {
    "admin": ("-", "admin"),
    "operator": ("-", "operator"),
    "watcher": ("-", "viewer"),
    "red-admin": ("red", "admin"),
    "red-operator": ("red", "operator"),
    "ada": ("red", "member"),
    "red-viewer": ("red", "viewer"),
    "eve": ("blue", "member"),
    "nobody": None,
}


@pytest.fixture(scope="module")
def site(rehearsal: Server) -> Iterator[Site]:
    clients = {"admin": rehearsal.client}
    for name, role in ROLES.items():
        if name == "admin":
            continue
        rehearsal.client.post("/users", json={"name": name}).raise_for_status()
        if role is not None:
            rehearsal.client.put(f"/users/{name}/roles/{role[0]}", json={"role": role[1]}).raise_for_status()
        body = {"name": "test", "user": name, "scopes": ["read", "write", "admin"]}
        clients[name] = rehearsal.as_user(rehearsal.client.post("/tokens", json=body).json()["token"])
    rehearsal.with_queues("red/llm")
    jobs = {}
    for user, queue in (("ada", "red/llm"), ("red-operator", "red"), ("eve", "blue")):
        job = {"command": "true", "gpus": 1, "queue": queue, "begin": "+10h", "name": f"job of {user}"}
        jobs[user] = clients[user].post("/jobs", json=job).raise_for_status().json()["id"]
    yield Site(rehearsal, clients, jobs)
    for job in jobs.values():
        rehearsal.client.post(f"/jobs/{job}:cancel")
    for name in ROLES:
        if name != "admin":
            rehearsal.client.delete(f"/users/{name}").raise_for_status()


JOB = {"command": "true", "gpus": 1, "begin": "+10h"}
EVERYBODY = set(ROLES)
WITH_EYES = EVERYBODY - {"nobody"}
RED = {"admin", "operator", "watcher", "red-admin", "red-operator", "ada", "red-viewer"}
WHOLE_OPERATORS = {"admin", "operator"}
WHOLE_VIEWERS = {"admin", "operator", "watcher"}
RED_OPERATORS = {"admin", "operator", "red-admin", "red-operator"}

MATRIX: dict[tuple[str, str], tuple[Any, set[str]]] = {
    ("POST", "/jobs"): ({**JOB, "queue": "red"}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs:batch"): ({"jobs": [{**JOB, "queue": "red"}]}, RED_OPERATORS | {"ada"}),
    ("GET", "/jobs"): (None, EVERYBODY),
    ("GET", "/usage"): (None, EVERYBODY),
    ("GET", "/jobs/{job}"): (None, RED),
    ("GET", "/jobs/{job}/attempts"): (None, RED),
    ("GET", "/jobs/{job}/why"): (None, RED),
    ("GET", "/jobs/{job}/logs"): (None, RED),
    ("GET", "/jobs/{job}/log-lines"): (None, RED),
    ("POST", "/jobs/{job}:hold"): ({}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:release"): ({}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:checkpoint"): ({}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:save"): ({}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:resize"): ({"replicas": 2}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:requeue"): (None, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:suspend"): (None, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:resume"): (None, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:update"): ({"priority": 0}, RED_OPERATORS | {"ada"}),
    ("POST", "/jobs/{job}:cancel"): ({}, RED_OPERATORS | {"ada"}),
    ("GET", "/jobs/{job}/progress"): (None, set()),
    ("POST", "/jobs/{job}/progress"): ({}, set()),
    ("POST", "/plan"): ({"jobs": [{**JOB, "queue": "red"}]}, RED),
    ("POST", "/what-if"): ({"fail": []}, WHOLE_VIEWERS),
    ("POST", "/uploads"): ({"any": "text"}, WHOLE_VIEWERS),
    ("GET", "/uploads"): (None, WHOLE_VIEWERS),
    ("DELETE", "/uploads/{upload_id}"): (None, WHOLE_OPERATORS),
    ("POST", "/studies"): ({"source": "synthetic:jobs=1,load=0.5"}, WHOLE_VIEWERS),
    ("GET", "/studies"): (None, WHOLE_VIEWERS),
    ("GET", "/studies/{study}"): (None, WHOLE_OPERATORS),
    ("GET", "/studies/{study}/answer"): (None, WHOLE_OPERATORS),
    ("GET", "/studies/{study}/report"): (None, WHOLE_OPERATORS),
    ("POST", "/studies/{study}:cancel"): (None, WHOLE_OPERATORS),
    ("DELETE", "/studies/{study}"): (None, WHOLE_OPERATORS),
    ("GET", "/reservations"): (None, EVERYBODY),
    ("GET", "/snapshot"): (None, {"admin"}),
    ("GET", "/nodes"): (None, WITH_EYES),
    ("GET", "/nodes/{name}"): (None, WITH_EYES),
    ("GET", "/nodes/{name}/timeline"): (None, WITH_EYES),
    ("GET", "/jobs/{job}/timeline"): (None, RED),
    ("GET", "/jobs/{job}/postmortem"): (None, RED),
    ("GET", "/timeline"): (None, WITH_EYES),
    ("GET", "/journal"): (None, WITH_EYES),
    ("GET", "/receipts"): (None, WITH_EYES),
    ("GET", "/past"): (None, WITH_EYES),
    ("GET", "/scheduler"): (None, WHOLE_VIEWERS),
    ("GET", "/reasons"): (None, WITH_EYES),
    ("GET", "/attention"): (None, WITH_EYES),
    ("GET", "/fragmentation"): (None, WITH_EYES),
    ("GET", "/series"): (None, WITH_EYES),
    ("GET", "/devices/map"): (None, WITH_EYES),
    ("GET", "/devices/frame"): (None, WITH_EYES),
    ("GET", "/devices/legend"): (None, WITH_EYES),
    ("GET", "/devices/shared"): (None, WITH_EYES),
    ("GET", "/devices/{node}/{index}"): (None, WITH_EYES),
    ("POST", "/nodes/{name}:drain"): ({}, WHOLE_OPERATORS),
    ("POST", "/nodes/{name}:undrain"): ({}, WHOLE_OPERATORS),
    ("GET", "/queues"): (None, EVERYBODY),
    ("GET", "/cluster"): (None, WITH_EYES),
    ("GET", "/cluster/queues"): (None, WHOLE_VIEWERS),
    ("GET", "/policy"): (None, WITH_EYES),
    ("GET", "/backends"): (None, EVERYBODY),
    ("GET", "/alerts"): (None, WHOLE_VIEWERS),
    ("GET", "/found"): (None, EVERYBODY),
    ("GET", "/found/{found}/logs"): (None, set()),
    ("PUT", "/cluster"): ({"nodes": "?"}, {"admin"}),
    ("PUT", "/policy"): ({"policy": "?"}, {"admin"}),
    ("GET", "/events"): (None, WITH_EYES),
    ("GET", "/debug/bundle"): (None, {"admin"}),
    ("GET", "/audit"): (None, {"admin"}),
    ("GET", "/me"): (None, EVERYBODY),
    ("GET", "/templates"): (None, EVERYBODY),
    ("GET", "/users"): (None, {"admin"}),
    ("POST", "/users"): ({"name": "newcomer"}, {"admin"}),
    ("PATCH", "/users/{name}"): ({"disabled": False}, {"admin"}),
    ("PUT", "/users/{name}/roles/{queue}"): ({"role": "viewer"}, {"admin", "red-admin"}),
    ("DELETE", "/users/{name}/roles/{queue}"): (None, {"admin", "red-admin"}),
    ("DELETE", "/users/{name}"): (None, {"admin"}),
    ("GET", "/tokens"): (None, EVERYBODY),
    ("POST", "/tokens"): ({"name": "another"}, EVERYBODY),
    ("DELETE", "/tokens/{token}"): (None, {"admin"}),
    ("GET", "/secrets"): (None, EVERYBODY),
    ("PUT", "/secrets/{name}"): ({"value": "x"}, {"admin"}),
    ("PUT", "/secrets/{name}/grants"): ({"queue": "red"}, {"admin"}),
    ("DELETE", "/secrets/{name}/grants"): (None, {"admin"}),
    ("DELETE", "/secrets/{name}"): (None, {"admin"}),
    ("GET", "/metrics"): (None, WHOLE_VIEWERS),
    ("POST", "/login"): ({"user": "x", "password": "y"}, set()),
    ("POST", "/session"): ({"token": "x"}, set()),
    ("GET", "/session"): (None, EVERYBODY),
    ("DELETE", "/session"): (None, EVERYBODY),
}
"""For every route, what to send, and who is let in. What they get may still be an error of another kind."""

SHUT_OUT = (401, 403, 404)
OPEN_ROUTES = {("POST", "/login"), ("POST", "/session"), ("GET", "/session")}


def operations(server: Server) -> list[tuple[str, str]]:
    document = server.client.get("/openapi.json").raise_for_status().json()
    return [
        (method.upper(), path.removeprefix("/api/v1"))
        for path, methods in document["paths"].items()
        for method in methods
    ]


def test_a_job_of_another_tenant_is_waited_for_as_little_as_one_that_there_is_not(site: Site) -> None:
    def refused(route: str, other: str, *before: dict[str, Any]) -> tuple[int, str, Any]:
        job = {"command": "true", "gpus": 1, "queue": "red/llm", "after": [other]}
        body = {"jobs": [*before, job]} if route != "/jobs" else job
        answer = site.clients["ada"].post(route, json=body)
        return answer.status_code, answer.json()["message"].replace(other, "ID"), answer.json()["detail"]

    first = {"command": "true", "gpus": 1, "queue": "red/llm", "name": "first"}
    for route, before in (("/jobs", ()), ("/jobs:batch", (first,)), ("/plan", (first,))):
        there, nowhere = (refused(route, other, *before) for other in (site.jobs["eve"], "99999999"))
        assert there == nowhere
        assert there == (422, "the job waits for job 'ID', which does not exist", {"index": len(before)})
    mine = {"command": "true", "gpus": 1, "queue": "red/llm", "after": [site.jobs["red-operator"]]}
    assert site.clients["ada"].post("/plan", json={"jobs": [mine]}).status_code == 200


def test_the_matrix_has_every_route(rehearsal: Server) -> None:
    assert sorted(operations(rehearsal)) == sorted(MATRIX)


@pytest.mark.parametrize(("method", "path"), sorted(MATRIX))
def test_every_role_gets_what_it_may_and_nothing_else(site: Site, method: str, path: str) -> None:
    body, allowed = MATRIX[method, path]
    for name, client in site.clients.items():
        response = call(site, client, method, path, body)
        let_in = response.status_code not in SHUT_OUT or "has not been started" in response.text
        assert let_in == (name in allowed), f"{name}: {response.status_code} {response.text[:200]}"
        undo(site, method, path)


def call(site: Site, client: httpx2.Client, method: str, path: str, body: Any) -> httpx2.Response:
    """Asks for something of ada's, of the node n0, or of the user `guest`."""
    filled = path.replace("{job}", site.jobs["ada"]).replace("{queue}", "red")
    if "{name}" in filled and filled.startswith("/users"):
        site.server.client.post("/users", json={"name": "guest"})
        if method == "DELETE" and filled.endswith("red"):
            site.server.client.put("/users/guest/roles/red", json={"role": "viewer"}).raise_for_status()
        filled = filled.replace("{name}", "guest")
    if "{token}" in filled:
        made = site.server.client.post("/tokens", json={"name": "spare"}).raise_for_status().json()
        filled = filled.replace("{token}", made["id"])
    if filled.startswith("/secrets/"):
        site.server.client.put("/secrets/SPARE", json={"value": "x", "grants": []}).raise_for_status()
        filled = filled.replace("{name}", "SPARE")
    if "{study}" in filled:
        filled = filled.replace("{study}", of_admin(site, "/studies", json={"source": "synthetic:jobs=1,load=0.5"}))
    if "{upload_id}" in filled:
        filled = filled.replace("{upload_id}", of_admin(site, "/uploads", content="any text"))
    filled = filled.replace("{name}", "n0").replace("{node}/{index}", "n0/0")
    url = site.server.url + "/metrics" if path == "/metrics" else filled
    parameters = {"follow": "false", "since": "0"} if path == "/events" else None
    return client.request(method, url, json=body, params=parameters)


def of_admin(site: Site, path: str, **made_of: Any) -> str:
    """Something of the admin's: what there is, or else a new one."""
    for item in site.server.client.get(path).raise_for_status().json()["items"]:
        if item["user"] == "admin":
            return str(item["id"])
    return str(site.server.client.post(path, **made_of).raise_for_status().json()["id"])


def undo(site: Site, method: str, path: str) -> None:
    """Puts right what a call may have changed, for the next."""
    admin = site.server.client
    if path.endswith(":cancel"):
        for job in admin.get("/jobs", params={"user": "ada", "state": "cancelled", "limit": 1}).json()["items"]:
            if job["id"] == site.jobs["ada"]:
                again = {**JOB, "queue": "red/llm", "user": "ada", "name": "job of ada"}
                site.jobs["ada"] = admin.post("/jobs", json=again).raise_for_status().json()["id"]
    if path.endswith(":drain"):
        admin.post("/nodes/n0:undrain").raise_for_status()
    if method == "POST" and path in ("/uploads", "/studies"):
        for item in admin.get(path).raise_for_status().json()["items"]:
            admin.delete(f"{path}/{item['id']}").raise_for_status()
    if path == "/users" and method == "POST":
        admin.delete("/users/newcomer")
    if path.startswith("/users/"):
        admin.delete("/users/guest")


def test_without_a_token_only_three_pages_are_open(rehearsal: Server) -> None:
    stranger = httpx2.Client(base_url=rehearsal.url)
    for path in ("/", "/healthz", "/readyz"):
        assert stranger.get(path).status_code == 200
    for method, path in operations(rehearsal):
        if (method, path) in OPEN_ROUTES:
            continue
        url = path if path == "/metrics" else "/api/v1" + path
        response = stranger.request(
            method, url.replace("{token}", "0" * 12).replace("{index}", "0"), json=None if method == "GET" else {}
        )
        assert response.status_code == 401, (method, path)
        assert response.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/api/v1/openapi.json", "/api/v1/docs"):
        assert stranger.get(path).status_code == 401
    stranger.close()


def test_a_member_sees_of_other_tenants_only_what_matters_to_waiting(site: Site) -> None:
    eve = site.clients["eve"]
    own = eve.get("/jobs").json()["items"]
    assert {job["queue"] for job in own} == {"blue"}
    others = eve.get("/jobs", params={"others": "true", "queue": "red"}).json()["items"]
    assert others
    assert all(set(job) == {"queue", "gpus", "expected_end_ms", "redacted"} for job in others)
    assert eve.get(f"/jobs/{site.jobs['ada']}").status_code == 404
    assert eve.get("/jobs/job of ada").status_code == 404
    assert eve.get("/jobs", params={"others": "true", "user": "ada"}).status_code == 422
    assert eve.get("/jobs", params={"user": "ada"}).json()["items"] == []


def test_a_member_hears_only_of_events_of_their_own_tenant(site: Site) -> None:
    text = site.clients["eve"].get("/events", params={"since": "-1", "follow": "false"}).text
    assert "job of eve" in text
    assert "job of ada" not in text
    assert '"red' not in text


def test_a_member_may_not_change_what_a_colleague_runs(site: Site) -> None:
    response = site.clients["ada"].post(f"/jobs/{site.jobs['red-operator']}:cancel")
    assert response.status_code == 403
    assert "red-operator" in response.json()["message"]


def test_a_member_without_a_role_in_the_queue_is_told_in_which_there_is_one(site: Site) -> None:
    refused = site.clients["ada"].post("/jobs", json=JOB)
    assert refused.status_code == 403
    assert refused.json()["message"].endswith("or take a queue in which you have it: red")


def test_a_member_may_not_submit_in_the_name_of_another(site: Site) -> None:
    body = {**JOB, "queue": "red", "user": "eve"}
    assert site.clients["ada"].post("/jobs", json=body).status_code == 403


def test_a_token_can_do_no_more_than_it_was_made_for(site: Site) -> None:
    ada = site.clients["ada"]
    reading = site.server.as_user(ada.post("/tokens", json={"name": "r", "scopes": ["read"]}).json()["token"])
    assert reading.get(f"/jobs/{site.jobs['ada']}").status_code == 200
    assert reading.post("/jobs", json={**JOB, "queue": "red"}).status_code == 403
    assert reading.post("/tokens", json={"name": "more", "scopes": ["write"]}).status_code == 403
    writing = site.server.as_user(ada.post("/tokens", json={"name": "w", "scopes": ["read", "write"]}).json()["token"])
    assert writing.post("/tokens", json={"name": "more", "scopes": ["admin"]}).status_code == 403


def test_a_revoked_token_is_worthless_at_once(site: Site) -> None:
    made = site.server.client.post("/tokens", json={"name": "short"}).json()
    client = site.server.as_user(made["token"])
    assert client.get("/me").status_code == 200
    site.server.client.delete(f"/tokens/{made['id']}").raise_for_status()
    assert client.get("/me").status_code == 401


def test_an_expired_token_is_worthless(site: Site) -> None:
    from running import eventually

    made = site.server.client.post("/tokens", json={"name": "brief", "ttl_s": 1}).json()
    client = site.server.as_user(made["token"])
    eventually(lambda: client.get("/me").status_code == 401)


def test_a_user_who_is_shut_out_stays_out(site: Site) -> None:
    admin = site.server.client
    admin.post("/users", json={"name": "mallory", "password": "a long password"}).raise_for_status()
    token = admin.post("/tokens", json={"name": "t", "user": "mallory"}).json()["token"]
    client = site.server.as_user(token)
    assert client.get("/me").status_code == 200
    admin.patch("/users/mallory", json={"disabled": True}).raise_for_status()
    assert client.get("/me").status_code == 401
    login = {"user": "mallory", "password": "a long password"}
    assert client.post("/login", json=login).status_code == 401
    admin.delete("/users/mallory").raise_for_status()


def test_a_password_is_traded_for_a_token(site: Site) -> None:
    admin = site.server.client
    admin.post("/users", json={"name": "pat", "password": "first password"}).raise_for_status()
    made = admin.post("/login", json={"user": "pat", "password": "first password", "name": "laptop"})
    assert made.status_code == 201
    pat = site.server.as_user(made.json()["token"])
    assert pat.get("/me").json()["user"] == "pat"
    change = {"password": "second password", "current_password": "first password"}
    pat.patch("/users/pat", json=change).raise_for_status()
    assert admin.post("/login", json={"user": "pat", "password": "first password"}).status_code == 401
    assert admin.post("/login", json={"user": "nobody-here", "password": "first password"}).status_code == 401
    admin.delete("/users/pat").raise_for_status()
    assert pat.get("/me").status_code == 401


def test_the_last_admin_cannot_be_removed(rehearsal: Server) -> None:
    admin = rehearsal.client
    assert admin.delete("/users/admin").status_code == 409
    assert admin.patch("/users/admin", json={"disabled": True}).status_code == 409
    assert admin.delete("/users/admin/roles/-").status_code == 409
    assert admin.put("/users/admin/roles/-", json={"role": "viewer"}).status_code == 409


@pytest.mark.parametrize(
    "token", ["x", "phx_000000000000_forged", "phxa_1_1_" + "0" * 64, "Bearer", "☃", "a" * 10_000, "null"]
)
def test_a_forged_token_is_refused(rehearsal: Server, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}".encode()}
    response = httpx2.get(rehearsal.url + "/api/v1/me", headers=headers)
    assert response.status_code in (401, 431)


def test_a_cookie_alone_lets_a_browser_look_and_change_nothing(rehearsal: Server) -> None:
    token = (rehearsal.data / "admin.token").read_text().strip()
    with httpx2.Client(base_url=rehearsal.url) as browser:
        response = browser.post("/api/v1/session", json={"token": token})
        cookie = response.headers["Set-Cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        page = browser.get("/api/v1/docs")
        assert page.status_code == 200
        assert "reference.js" in page.text
        assert browser.get("/api/v1/openapi.json").status_code == 200
        assert browser.post("/api/v1/jobs", json=JOB).status_code == 403


def test_pages_load_nothing_from_elsewhere_and_run_nothing_inline(rehearsal: Server) -> None:
    for path in (
        "/",
        "/ui/jobs/7?tab=why",
        "/ui/static/main.js",
        "/ui/static/style/base.css",
        "/ui/static/reference.js",
    ):
        response = httpx2.get(rehearsal.url + path)
        assert response.status_code == 200
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
    page = httpx2.get(rehearsal.url).text
    assert "style=" not in page
    assert re.findall(r"<script[^>]*>[^<]", page) == []


def test_a_browser_asks_again_for_files_of_the_page_and_loads_only_what_has_changed(rehearsal: Server) -> None:
    url = rehearsal.url + "/ui/static/main.js"
    first = httpx2.get(url, headers={"Accept-Encoding": "gzip"})
    assert (first.headers["Content-Encoding"], first.headers["Cache-Control"]) == ("gzip", "no-cache")
    assert first.text == httpx2.get(url, headers={"Accept-Encoding": "identity"}).text
    assert httpx2.get(url, headers={"If-None-Match": first.headers["ETag"]}).status_code == 304


def test_browsers_find_an_icon_where_the_pages_say_and_where_they_look_unasked(rehearsal: Server) -> None:
    assert 'rel="icon" href="/ui/static/icon.svg"' in httpx2.get(rehearsal.url).text
    for path in ("/ui/static/icon.svg", "/favicon.ico"):
        icon = httpx2.get(rehearsal.url + path)
        assert (icon.status_code, icon.headers["Content-Type"]) == (200, "image/svg+xml")


def test_roles_hold_for_a_queue_and_all_below_it() -> None:
    account = Account("ada", (Grant("red/llm", Role.OPERATOR), Grant("blue", Role.VIEWER)))
    assert account.may(Role.OPERATOR, "red/llm/deep")
    assert not account.may(Role.OPERATOR, "red")
    assert not account.may(Role.OPERATOR, "red/llm2"), "a name that only begins alike is another queue"
    assert account.sees("blue/sky")
    assert not account.may(Role.MEMBER, "blue/sky")


@pytest.mark.parametrize("role", list(Role))
def test_a_role_covers_those_before_it(role: Role) -> None:
    account = Account("ada", (Grant("", role),), ALL_SCOPES)
    order = list(Role)
    assert [account.may(each, "any") for each in order] == [each in order[: order.index(role) + 1] for each in order]


def test_a_token_without_a_scope_lacks_what_needs_it() -> None:
    account = Account("ada", (Grant("", Role.ADMIN),), (Scope.READ,))
    assert account.sees("any")
    assert not account.may(Role.MEMBER, "any")
    assert not account.may(Role.ADMIN)


def test_tokens_are_kept_as_digests_and_differ() -> None:
    one, two = new_token(), new_token()
    assert one.token != two.token
    assert one.digest == digest_of(one.token)
    assert one.token not in one.digest


def test_the_token_of_an_attempt_is_for_that_attempt_only() -> None:
    secret = b"secret"
    token = attempt_token(secret, "4821.7", 2)
    assert read_attempt_token(secret, token) == ("4821.7", 2, "")
    incarnation = "3f9c2a7b10d4e865"
    named = attempt_token(secret, "4821.7", 2, incarnation)
    assert read_attempt_token(secret, named) == ("4821.7", 2, incarnation)
    assert read_attempt_token(secret, named.replace(incarnation, incarnation[::-1])) is None
    assert read_attempt_token(secret, named.replace(f"{incarnation}_", "")) is None
    assert read_attempt_token(b"other", token) is None
    assert read_attempt_token(secret, token.replace("_2_", "_3_")) is None
    assert read_attempt_token(secret, token + "0") is None
