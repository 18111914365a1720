"""People with accounts on a server, for tests of what they can do to one another."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

import httpx2
from running import Server


@dataclass(frozen=True, slots=True)
class Person:
    """An account and a client that uses its token."""

    name: str
    client: httpx2.Client


def person(server: Server, *roles: str, unix_user: str = "") -> Person:
    """An account with roles such as `member of team/a`; of no queue, of all."""
    name = f"user-{uuid4()}"
    server.client.post("/users", json={"name": name, "unix_user": unix_user}).raise_for_status()
    for words in roles:
        role, _, queue = words.partition(" of ")
        server.client.put(f"/users/{name}/roles/{queue or '-'}", json={"role": role}).raise_for_status()
    scopes = ["read", "write", "admin"]
    made = server.client.post("/tokens", json={"name": "t", "user": name, "scopes": scopes}).raise_for_status().json()
    return Person(name, server.as_user(made["token"]))


def printed(server: Server, client: httpx2.Client, script: str, **job: object) -> tuple[str, str]:
    """What a script that runs as a job of somebody prints, to both of its streams, once it has ended."""
    body = {"command": ["/bin/sh", "-c", script], "gpus": 1, **job}
    response = client.post("/jobs", json=body)
    assert response.status_code == 201, response.text
    made = response.json()["id"]
    ended = server.wait(made, "succeeded", "failed", "cancelled")
    assert ended["attempts"], ended["end_reason"]
    out, err = (server.client.get(f"/jobs/{made}/logs", params={"stream": each}) for each in ("out", "err"))
    return out.text, err.text
