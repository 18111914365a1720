"""`phalanx events`: what happens on the cluster, as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from phalanx.cli.client import Client, connect, job_path
from phalanx.cli.output import Output, cell, output_option
from phalanx.cli.when import clock

BESIDE = ("seq", "now_ms", "type", "job")


@click.command()
@click.option(
    "--since",
    type=click.IntRange(0),
    metavar="SEQ",
    help="Start after the record with this sequence number. Default: with the next event.",
)
@click.option("--job", default="", metavar="ID", help="Only events of this job.")
@click.option("--type", "kind", default="", metavar="TYPE", help="Only events of this type, such as AttemptEnded.")
@click.option("--no-follow", is_flag=True, help="Print past events and exit; from the first event, or after --since.")
@click.option("--limit", type=click.IntRange(1), help="Exit after this many events. Default: no limit.")
@output_option
def events(since: int | None, job: str, kind: str, no_follow: bool, limit: int | None, output: Output) -> None:
    """Print events as they happen, until Ctrl-C, one per line as text or JSON."""
    client, told = connect(), 0
    if job:
        job = client.get(job_path(job))["id"]
    begin = -1 if since is None and no_follow else since
    for event in server_sent(client, begin, not no_follow):
        if (job and job_of(event) != job) or (kind and event["type"] != kind):
            continue
        click.echo(json.dumps(event) if output == "json" else _line(event))
        told += 1
        if told == limit:
            return


def server_sent(client: Client, since: int | None, follow: bool = True) -> Iterator[dict[str, Any]]:
    """The events of the server's stream."""
    unread = b""
    for piece in client.stream("/events", since=since, follow=follow):
        *blocks, unread = (unread + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for block in blocks:
            data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            if data:
                yield json.loads(data)


def job_of(event: dict[str, Any]) -> str:
    """The id of the job an event is about; empty if it is about none."""
    about = event.get("job") or (event.get("action") or [None, ""])[1]
    return str(about["id"]) if isinstance(about, dict) else str(about)


def _line(event: dict[str, Any]) -> str:
    known = {key: value for key, value in event.items() if key not in BESIDE and not isinstance(value, dict | list)}
    rest = " ".join(f"{key}={cell(value)}" for key, value in known.items() if value not in ("", None))
    return f"{clock(event.get('now_ms'))}  {event['type']:<20} {job_of(event) or '-':<8} {rest}".rstrip()
