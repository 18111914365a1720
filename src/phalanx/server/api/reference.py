"""The reference of the API as a page of the documentation, made from the OpenAPI document.

`python -m phalanx.server.api.reference > docs/reference/rest.md` writes it anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from phalanx.server.api.app import create_app, openapi
from phalanx.server.api.process import context_for
from phalanx.server.options import Options
from phalanx.server.refusal import STATUS

INTRODUCTION = """# The REST API

Everything below `/api/v1`. This page is made from the server's own OpenAPI document, which is at
`/api/v1/openapi.json`; `/api/v1/docs` renders it in a browser, with nothing loaded from elsewhere.

**Tokens.** Every request carries `Authorization: Bearer TOKEN`. Without one only `/healthz`, `/readyz` and the files
of the page are open; `POST /api/v1/login` and `POST /api/v1/session` take what stands for one.

**Sessions.** `POST /api/v1/session` opens a session of a browser with a password or a token. Its secret is in a cookie
that scripts cannot read (`HttpOnly`, `SameSite=Strict`, `Secure` over HTTPS), and is no bearer token. The cookie is
enough to look; a change also needs the header `X-CSRF-Token` with the `csrf` of `GET /api/v1/session`, from a page of
this server (`Origin`, `Sec-Fetch-Site`), or it is `forbidden`. A session ends after 2 hours without a request, after 12
hours in all, with the token it was opened with, and at once by `DELETE /api/v1/session` or `DELETE /tokens/{token}`. A
user has at most 32; one more ends the oldest.

**Lists** are `{"items": […], "next": CURSOR}`. The next page is asked for with `?cursor=CURSOR` and the same filters;
`next` is null on the last. Pages follow one another without gaps while jobs come and go.

**Asking twice.** `Idempotency-Key: TEXT` on `POST /jobs` and `POST /jobs:batch` makes a repeated request harmless:
within a day the same key with the same body gets the answer of the first, with the header `Idempotent-Replay: true`;
with another body it is a `conflict`.

**Old news.** `GET /jobs/{job}` has an `ETag`; a change with `If-Match` is refused with `precondition_failed` if the job
has changed since.

**Durable.** A change is answered when it is on the disk. If the engine goes away before it answers, the response is
`unavailable`: ask again with the same key.

**Sizes.** A job file has at most 1,048,576 characters. Bodies of `jobs:batch`, `cluster`, `plan` and `what-if` have at
most 32 MB, an upload 256 MiB, all others at most 4 MB. What is larger is `too_large`.

**Times** are milliseconds since 1970. `{job}` is an id, or a name that only one live job has.

**Events** (`GET /events`) are server-sent: `id` is the number of the journal record, and a stream that broke off goes
on with `Last-Event-ID`, a number from 0 to 2^62; any other is a `bad_request`. With `?live=true`, for pages, at most
four pieces a second come: many records as one event `changes`, too many as an event `gap`, after which a page reads
anew what it shows. An event `figures` without an id says that series have new points.

**Commands beside a task** run over a web socket at `/jobs/{job}/exec?rank=0&arg=WORD&arg=WORD`, in a terminal with
`&tty=ROWSxCOLUMNS`, for callers that may change the job. Binary messages are what is typed, at most 1 MiB each, and
printed.
The caller may send the texts `{"eof": true}` and `{"resize": [ROWS, COLUMNS]}`; the last message is the text
`{"exit": CODE}` (negative for a signal) or `{"error": MESSAGE}`. `/jobs/{job}/attach?rank=0&tty=ROWSxCOLUMNS` is the
terminal of a task of an interactive job in the same words; closing it leaves the task as it is.
`/jobs/{job}/forward?rank=0&port=8888` is one connection to a port that the task listens on: binary messages both ways,
and `{"eof": true}` from either side once it sends no more. With `&check=true` nothing is connected: the answer tells
whether it may be.

**Open connections** last as long as the right to them. When the token is revoked or expires, its user is disabled or
deleted, or the role is taken away, event streams and logs are cut, and commands are hung up with the close code 1008
and the reason, within two seconds. In each API worker a user has at most 8 commands, 64 forwarded ports, 32 followed
logs and 32 event streams open, and all users together 128, 512, 512 and 512; one more is `rate_limited`.

**Errors** are `{"code", "message", "detail"}`:
"""


def document() -> dict[str, Any]:
    """The OpenAPI document, without a server."""
    return openapi(create_app(context_for(Options(data="/nonexistent"))))


def page(found: dict[str, Any]) -> str:
    """The page."""
    return "\n".join([INTRODUCTION, *_errors(), *_routes(found), *_objects(found)]).rstrip() + "\n"


def _errors() -> Iterator[str]:
    yield "| status | code |"
    yield "| --- | --- |"
    for code, status in STATUS.items():
        yield f"| {status} | `{code}` |"
    yield ""


def _routes(found: dict[str, Any]) -> Iterator[str]:
    yield "## Routes\n"
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield f"### {method.upper()} {path}\n"
            yield f"{operation['description']}\n"
            yield from _parameters(operation.get("parameters", []))
            yield from _body(operation, found)
            yield from _answers(operation)


def _parameters(parameters: list[dict[str, Any]]) -> Iterator[str]:
    if parameters:
        yield "| parameter | in | type | |"
        yield "| --- | --- | --- | --- |"
        for each in parameters:
            yield f"| `{each['name']}` | {each['in']} | {_type(each['schema'])} | {each.get('description', '')} |"
        yield ""


def _body(operation: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body: `{media}`, {_type(content['schema'])}\n"
        example = content.get("example", _resolved(content["schema"], found).get("example"))
        if example is not None:
            yield "```\n" + (example if isinstance(example, str) else json.dumps(example)).strip() + "\n```\n"


def _answers(operation: dict[str, Any]) -> Iterator[str]:
    good = {status: answer for status, answer in operation["responses"].items() if int(status) < 400}
    bad = [status for status in operation["responses"] if int(status) >= 400]
    for status, answer in good.items():
        types = [
            f"`{media}` {_type(content.get('schema', {}))}" for media, content in answer.get("content", {}).items()
        ]
        yield f"Answers {status}: {', '.join(types) or 'nothing'}; or {', '.join(bad)}.\n"


def _objects(found: dict[str, Any]) -> Iterator[str]:
    yield "## Objects\n"
    for name, schema in sorted(found["components"]["schemas"].items()):
        yield f"### {name}\n"
        yield f"{schema.get('description', '')}\n"
        required = schema.get("required", [])
        if schema.get("properties"):
            yield "| key | type | |"
            yield "| --- | --- | --- |"
        for key, value in schema.get("properties", {}).items():
            optional = "" if key in required else "optional. "
            yield f"| `{key}` | {_type(value)} | {optional}{value.get('description', '')} |"
        yield ""


def _resolved(schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "").rpartition("/")[2]
    resolved: dict[str, Any] = found["components"]["schemas"][reference] if reference else schema
    return resolved


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if schema.get("title") == "JobFile":
        return "[job file](job-file.md)"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and schema.get("properties", {}).get("jobs"):
        return "`{jobs: [job file, …]}`"
    return str(schema.get("type", "anything"))


if __name__ == "__main__":
    sys.stdout.write(page(document()))
