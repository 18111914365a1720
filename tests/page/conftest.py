"""A real server and a real browser that the tests of a module share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "server"))

from running import Server

from phalanx.bench.page.browser import Browser
from phalanx.bench.page.tab import Page


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium; each test opens tabs of its own."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with 4 simulated nodes of 8 GPUs, whose jobs really run."""
    folder = tmp_path_factory.mktemp("server")
    folder.chmod(0o777)
    server = Server(folder / "data", "--simulate", "--nodes", "4", "--gpus", "8").start()
    yield server
    server.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of a browser that nothing is known to; afterwards nothing must have been said on its console."""
    page = browser.page()
    page.call("Network.clearBrowserCookies")
    yield page
    page.leave()
    assert page.said == []


@pytest.fixture
def admin(page: Page, server: Server) -> Page:
    """A tab in which the admin has logged in."""
    page.open(server.url)
    page.log_in((server.data / "admin.token").read_text().strip())
    return page
