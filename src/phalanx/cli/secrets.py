"""`phalanx secrets`: values that jobs get as variables, and the grants that let them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import queue_names
from phalanx.cli.files import FileError
from phalanx.cli.output import Column, Output, emit, output_option
from phalanx.cli.when import clock

COLUMNS = (Column("name"), Column("granted", "GRANTS"), Column("has_value", "VALUE"), Column("updated"))

queue_option = click.option(
    "--queue",
    default="",
    shell_complete=queue_names,
    help="Jobs of this queue and the queues below it; - for all queues.",
)
user_option = click.option("--user", default="", help="Jobs of this user; with --queue, only in that queue.")


@click.group(invoke_without_command=True)
@click.pass_context
@output_option
def secrets(ctx: click.Context, output: Output) -> None:
    """List the secrets that your jobs may use, or manage them with a subcommand. Values are never shown."""
    if ctx.invoked_subcommand is None:
        _list(output)


@secrets.command("list")
@output_option
def list_(output: Output) -> None:
    """List the secrets that your jobs may use; an admin sees all. No job may use a secret without a grant."""
    _list(output)


@secrets.command("set")
@click.argument("name")
@click.option(
    "--from-file", "path", metavar="FILE", help="Read the value from FILE. Default: from a pipe, or typed at a prompt."
)
def set_(name: str, path: str | None) -> None:
    """Set the value of the secret NAME, which jobs get as the environment variable NAME. Grants are unchanged.

    The value cannot be an argument, because other users of this machine could see it.
    """
    made = connect().change("PUT", _path(name), {"value": _value(name, path)})
    advice = "" if made["grants"] else f"; no job may use it before `phalanx secrets grant {name} --queue QUEUE`"
    click.echo(f"set {name}{advice}", err=True)


@secrets.command()
@click.argument("name")
@queue_option
@user_option
def grant(name: str, queue: str, user: str) -> None:
    """Allow jobs of a queue, of a user, or of a user in a queue to use the secret NAME."""
    _need_one(queue, user)
    given = {key: value for key, value in (("queue", queue), ("user", user)) if value}
    connect().change("PUT", f"{_path(name)}/grants", given)
    click.echo(f"{_words(queue, user)} may use {name}", err=True)


@secrets.command()
@click.argument("name")
@queue_option
@user_option
def revoke(name: str, queue: str, user: str) -> None:
    """Revoke a grant of the secret NAME; use the same options as `grant`.

    Pending jobs that need it fail at their next start. Running tasks keep the value.
    """
    _need_one(queue, user)
    connect().change("DELETE", f"{_path(name)}/grants", queue=queue, user=user)
    click.echo(f"{_words(queue, user)} may not use {name} any more, unless by another grant", err=True)


@secrets.command()
@click.argument("name")
def delete(name: str) -> None:
    """Delete the secret NAME with its value and its grants."""
    connect().change("DELETE", _path(name))
    click.echo(f"deleted {name}; tasks that run keep the value they were started with", err=True)


def _list(output: Output) -> None:
    emit([_row(secret) for secret in connect().get("/secrets")["items"]], COLUMNS, output)


def _row(secret: dict[str, Any]) -> dict[str, Any]:
    granted = [f"{grant['user'] or '*'}@{grant['queue'] or '*'}" for grant in secret["grants"]]
    return {**secret, "granted": granted, "updated": clock(secret["updated_ms"])}


def _value(name: str, path: str | None) -> str:
    """The value that is in a file, comes from a pipe, or is typed without being shown."""
    if path is None and sys.stdin.isatty():
        return str(click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True))
    source = path or "standard input"
    try:
        value = (Path(path).read_bytes() if path is not None else sys.stdin.buffer.read()).decode()
    except OSError as error:
        raise FileError(f"{source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise FileError(f"{source}: expected text in UTF-8; set another form of it, such as its base64") from None
    if not value.rstrip("\n"):
        raise FileError(f"{source}: expected the value of {name}, found nothing")
    return value


def _need_one(queue: str, user: str) -> None:
    if not queue and not user:
        raise click.UsageError("say which jobs: --queue QUEUE, --user USER, or both; `--queue -` is every queue")


def _words(queue: str, user: str) -> str:
    where = "" if not queue else " in every queue" if queue == "-" else f" in {queue} and below"
    return f"jobs{f' of {user}' if user else ''}{where}"


def _path(name: str) -> str:
    return f"/secrets/{quote(name, safe='')}"
