"""The page of a server that goes on, at a past moment, in Chromium."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from axe import violations
from running import Server

from phalanx.bench.page.tab import Page, until

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose jobs run nothing."""
    folder = tmp_path_factory.mktemp("past")
    server = Server(folder / "data", "--backend", "rehearsal", "--simulate", "--nodes", "2", "--gpus", "8").start()
    server.wait(server.submit(name="early", gpus=8, duration="2h")["id"], "running")
    yield server
    server.stop()


def test_looking_back_shows_what_was_offers_no_change_and_ends_in_the_present(admin: Page, server: Server) -> None:
    at_ms = int(time.time() * 1000)
    until(lambda: int(time.time() * 1000) > at_ms + 50, "a moment has passed")
    admin.open(f"{server.url}/ui/jobs")
    admin.see("early")
    admin.click("Look back")
    admin.see("the past, not live")
    admin.open(f"{server.url}/ui/jobs?at={at_ms}")
    admin.see("early")
    late = server.submit(name="late", gpus=8, duration="2h")
    server.wait(late["id"], "running")
    server.client.post("/jobs/1:cancel").raise_for_status()
    server.wait("1", "cancelled")
    admin.open(f"{server.url}/ui/jobs/1?at={at_ms}")
    admin.see("running")
    offered = admin.run("[...document.querySelectorAll('nav a, button, a.button')].map((each) => each.innerText)")
    assert not {"Submit", "Accounts", "What if", "Cancel…", "Change…"} & set(offered)
    assert violations(admin) == []
    admin.click("Jobs")
    admin.see("1 job", "main")
    admin.miss("late")
    admin.click("Back to now")
    admin.see("late")
    admin.see("live")
    assert "at=" not in admin.run("location.search")


def test_the_bar_is_one_row_at_1200_pixels(admin: Page, server: Server) -> None:
    admin.size(1200, 900)
    admin.open(f"{server.url}/ui/overview")
    admin.see("live")
    assert admin.run("document.querySelector('.bar').offsetHeight") < 64
