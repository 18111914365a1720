"""One tab of Chromium over its DevTools protocol: opens, types, clicks, and keeps what it logs and fetches."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection

PATIENCE_S = 30.0
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Tab": ("Tab", 9, ""),
    "ArrowRight": ("ArrowRight", 39, ""),
    "Home": ("Home", 36, ""),
    "PageDown": ("PageDown", 34, ""),
}


class PageError(AssertionError):
    """A page is not what was expected, or the browser refuses a command."""


class Page:
    """One tab. `said` is what reached its console as warning or error, `fetched` the addresses it asked for;
    `listeners` hear of what else the browser tells, by its name.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.said: list[str] = []
        self.fetched: list[str] = []
        self.listeners: dict[str, Callable[[dict[str, Any]], object]] = {}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends one command and waits for its answer."""
        return self.answer(self.send(method, **parameters))

    def answer(self, number: int) -> dict[str, Any]:
        """Waits for the answer to a command that was sent."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            message = json.loads(self._socket.recv(timeout=max(0.1, deadline_s - time.monotonic())))
            if message.get("id") == number:
                if "error" in message:
                    raise PageError(f"the browser refuses: {message['error']}")
                return dict(message["result"])
            self._note(message)

    def send(self, method: str, **parameters: Any) -> int:
        """Sends one command and waits for nothing; its number."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        return self._number

    def _note(self, message: dict[str, Any]) -> None:
        content = message.get("params", {})
        if message.get("method") in self.listeners:
            self.listeners[message["method"]](content)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.fetched.append(content["request"]["url"])
            case "Runtime.exceptionThrown":
                detail = content["exceptionDetails"]
                self.said.append(f"{detail['text']} {detail.get('exception', {}).get('description', '')}")
            case "Runtime.consoleAPICalled" if content["type"] in ("error", "warning", "assert"):
                self.said.append(" ".join(str(each.get("value", each.get("description"))) for each in content["args"]))
            case "Log.entryAdded" if content["entry"]["level"] in ("error", "warning"):
                self.said.append(f"{content['entry']['text']} {content['entry'].get('url', '')}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        return self.value(self.begin(script))

    def begin(self, script: str) -> int:
        """Has an expression worked out and does not wait for it; what to ask its `value` with."""
        return self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)

    def value(self, number: int) -> Any:
        """The value of an expression that was begun."""
        answer = self.answer(number)
        if "exceptionDetails" in answer:
            raise PageError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Goes to an address as one would by typing it."""
        self.call("Page.navigate", url=url)
        until(lambda: self.run("document.readyState") == "complete" and self.run("location.href") != "about:blank", url)

    def see(self, text: str, within: str = "body") -> None:
        """Waits until a text is there to be read."""
        look = f"(document.querySelector({json.dumps(within)})?.innerText ?? '').includes({json.dumps(text)})"
        until(lambda: self.run(look), f"'{text}' is shown", self.text)

    def miss(self, text: str, within: str = "body") -> None:
        """Waits until a text is not there any more."""
        look = f"(document.querySelector({json.dumps(within)})?.innerText ?? '').includes({json.dumps(text)})"
        until(lambda: not self.run(look), f"'{text}' is gone", self.text)

    def text(self) -> str:
        """All that can be read."""
        return str(self.run("document.body.innerText"))

    def click(self, what: str, nth: int = 0) -> None:
        """Presses the button, link, tab or box that has this text or label, or that a selector in [] names."""
        script = f"""(() => {{
          const what = {json.dumps(what)};
          const shown = (each) => each.checkVisibility() && !each.disabled;
          const names = (each) => [each.innerText?.trim(), each.ariaLabel, each.labels?.[0]?.innerText.trim()];
          const named = (each) => names(each).includes(what);
          const scope = document.querySelector("dialog[open]") ?? document;
          const all = what.startsWith("[")
            ? [...scope.querySelectorAll(what.slice(1, -1))]
            : [...scope.querySelectorAll("button, a, summary, [role=tab], input, [role=row]")].filter(named);
          const found = all.filter(shown)[{nth}];
          found?.focus();
          found?.click();
          return Boolean(found);
        }})()"""
        until(lambda: self.run(script), f"'{what}' can be pressed", self.text)

    def fill(self, label: str, value: str) -> None:
        """Replaces what is in the field of a label, as typing does."""
        script = f"""(() => {{
          const scope = document.querySelector("dialog[open]") ?? document;
          const all = [...scope.querySelectorAll("input, textarea, select")];
          const label = {json.dumps(label)};
          const labels = (each) => [each.ariaLabel, ...[...(each.labels ?? [])].map((one) => one.innerText.trim())];
          const found = all.find((each) => labels(each).includes(label));
          if (!found || found.disabled) return false;
          const kinds = {{INPUT: HTMLInputElement, TEXTAREA: HTMLTextAreaElement, SELECT: HTMLSelectElement}};
          const kind = kinds[found.tagName];
          found.focus();
          Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(found, {json.dumps(value)});
          found.dispatchEvent(new Event("input", {{bubbles: true}}));
          found.dispatchEvent(new Event("change", {{bubbles: true}}));
          return true;
        }})()"""
        until(lambda: self.run(script), f"there is a field '{label}'", self.text)

    def log_in(self, token: str) -> None:
        """Logs in by a token, with the keyboard."""
        self.fill("Token", token)
        self.press("Enter")
        self.see("Log out")

    def press(self, key: str) -> None:
        """Presses a key where the focus is."""
        name, code, text = KEYS[key]
        about = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path) -> None:
        """Writes what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def size(self, width: int, height: int) -> None:
        """The size of the window, for phones and pictures."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def forgive(self, status: str) -> None:
        """Forgets that the browser told of answers with this status, which it does by itself."""
        self.said = [line for line in self.said if f"status of {status}" not in line]

    def intercept(self, pattern: str, status: int, body: bytes, **headers: str) -> None:
        """Has requests whose address matches a pattern answered so, without the server."""
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in headers.items()]
        content = base64.b64encode(body).decode()
        self.listeners["Fetch.requestPaused"] = lambda paused: self.send(
            "Fetch.fulfillRequest",
            requestId=paused["requestId"],
            responseCode=status,
            responseHeaders=told,
            body=content,
        )
        self.call("Fetch.enable", patterns=[{"urlPattern": pattern}])

    def close(self) -> None:
        """Closes the tab."""
        self.send("Page.close")
        self._socket.close()

    def leave(self) -> None:
        """Ends what the tab does: its streams, and its part in workers that tabs share."""
        self.call("Page.navigate", url="about:blank")


def until(look: Callable[[], Any], what: str, otherwise: Callable[[], str] = str) -> None:
    """Looks again and again until it is so."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > deadline_s:
            raise PageError(f"not in {PATIENCE_S:g} s: {what}\n{otherwise()[:3000]}")
        time.sleep(0.03)
