"""Chromium: one process with a profile of its own, without a window."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect

from phalanx.bench.page.tab import PATIENCE_S, Page, until
from phalanx.errors import PhalanxError

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--remote-debugging-port=0",
    "--window-size=1280,900",
)


class NoBrowserError(PhalanxError):
    """There is no Chromium here."""


class Browser:
    """One process; its pages share cookies and workers."""

    def __init__(self, profile: Path) -> None:
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise NoBrowserError(f"expected {' or '.join(NAMES)} on PATH: `apt-get install chromium` has it")
        self._process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port_file = profile / "DevToolsActivePort"
        until(lambda: port_file.is_file() and port_file.read_text().strip(), "Chromium listens")
        self._port = int(port_file.read_text().split()[0])
        self._lines = ExitStack()

    def page(self) -> Page:
        """A new tab."""
        with urlopen(self._request("/json/new?about:blank"), timeout=PATIENCE_S) as answer:
            target = json.load(answer)
        return self._attached(target["webSocketDebuggerUrl"])

    def page_apart(self) -> Page:
        """A new tab that shares no cookies and no workers with any other: the browser of another user."""
        with urlopen(f"http://127.0.0.1:{self._port}/json/version", timeout=PATIENCE_S) as answer:
            url = json.load(answer)["webSocketDebuggerUrl"]
        with connect(url, compression=None) as line:
            context = _answer(line, "Target.createBrowserContext")["browserContextId"]
            target = _answer(line, "Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        return self._attached(f"ws://127.0.0.1:{self._port}/devtools/page/{target}")

    @property
    def pid(self) -> int:
        """The process of the browser itself; its renderers are below it."""
        return self._process.pid

    def close(self) -> None:
        """Ends the process and all that it started."""
        self._lines.close()
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _attached(self, url: str) -> Page:
        line = connect(url, max_size=None, compression=None, ping_interval=None)
        return Page(self._lines.enter_context(line))

    def _request(self, path: str) -> Request:
        return Request(f"http://127.0.0.1:{self._port}{path}", method="PUT")


def _answer(line: ClientConnection, method: str, **parameters: Any) -> dict[str, Any]:
    """What the browser itself answers to its first command of a kind."""
    line.send(json.dumps({"id": 1, "method": method, "params": parameters}))
    while True:
        message = json.loads(line.recv(timeout=PATIENCE_S))
        if message.get("id") == 1:
            return dict(message["result"])
