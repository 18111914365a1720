"""A scheduler as trainers see it: it hears of their progress and tells them what it wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Scheduler:
    """A server that takes progress and gives a fixed answer."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.questions, self.status = 0, 200
        self.answer: dict[str, Any] = {"checkpoint_until_ms": None, "stop_at_ms": None}
        self.on_report: Callable[[dict[str, Any]], None] = lambda body: None
        """What is done with a report before it is answered."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.heard.append((self.headers["Authorization"], body))
                outer.on_report(body)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer).encode())

            def do_GET(self) -> None:
                outer.questions += 1
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/progress"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
