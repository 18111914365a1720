"""`phalanx users`: users, and what each may do."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

import click

from phalanx.cli.client import connect
from phalanx.cli.complete import queue_names
from phalanx.cli.output import Column, Output, emit, output_option

COLUMNS = (Column("name"), Column("granted", "ROLES"), Column("disabled"), Column("unix_user"))
ROLES = click.Choice(["admin", "operator", "member", "viewer"])


@click.group(invoke_without_command=True)
@click.pass_context
@output_option
def users(ctx: click.Context, output: Output) -> None:
    """List the users with their roles, or manage them with a subcommand."""
    if ctx.invoked_subcommand is None:
        emit([_row(user) for user in connect().get("/users")["items"]], COLUMNS, output)


@users.command()
@click.argument("name")
@click.option(
    "--password",
    is_flag=True,
    help="Set a password at a prompt. Default: no password; the user logs in with tokens only.",
)
@click.option("--role", type=ROLES, help="Role of the user. Default: none.")
@click.option(
    "--queue",
    default="",
    shell_complete=queue_names,
    help="Queue in which the role holds, with the queues below it. Default: the whole cluster.",
)
@click.option(
    "--unix-user",
    default="",
    help="Unix user that runs the tasks of this user. Default: chosen by the server, see `up --job-user`.",
)
def add(name: str, password: bool, role: str | None, queue: str, unix_user: str) -> None:
    """Add the user NAME."""
    client = connect()
    body: dict[str, Any] = {"name": name, "unix_user": unix_user}
    if password:
        body["password"] = _new_password()
    client.post("/users", body)
    if role:
        client.change("PUT", _role_path(name, queue), {"role": role})
    way_in = "" if password else f"; `phalanx tokens add NAME --user {name}` makes a token to log in with"
    click.echo(f"added {name}, {_words(role or '', queue)}{way_in}", err=True)


@users.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove the user NAME and the tokens of this user."""
    connect().change("DELETE", f"/users/{quote(name, safe='')}")
    click.echo(f"removed {name}; pending jobs are cancelled, those that run go on", err=True)


@users.command()
@click.argument("name")
@click.argument("role", type=ROLES)
@click.option(
    "--queue",
    default="",
    shell_complete=queue_names,
    help="Queue of the role, with the queues below it. Default: the whole cluster.",
)
def grant(name: str, role: str, queue: str) -> None:
    """Give the user NAME a role."""
    connect().change("PUT", _role_path(name, queue), {"role": role})
    click.echo(f"{name} is {_words(role, queue)}", err=True)


@users.command()
@click.argument("name")
@click.option(
    "--queue",
    default="",
    shell_complete=queue_names,
    help="Queue of the role, with the queues below it. Default: the whole cluster.",
)
def revoke(name: str, queue: str) -> None:
    """Remove the role of the user NAME in a queue."""
    connect().change("DELETE", _role_path(name, queue))
    click.echo(f"{name} has no role {_where(queue)} any more", err=True)


@users.command()
@click.argument("name")
def password(name: str) -> None:
    """Set the password of the user NAME at a prompt. Your own needs the current one; another user's, the role admin."""
    client = connect()
    body = {}
    if client.get("/me")["user"] == name:
        current = asked_password("Current password (empty if you have none)", optional=True)
        body = {"current_password": current} if current else {}
    client.change("PATCH", f"/users/{quote(name, safe='')}", {**body, "password": _new_password()})
    click.echo(f"{name} has a new password", err=True)


@users.command()
@click.argument("name")
def disable(name: str) -> None:
    """Disable the user NAME: tokens and password are refused, and pending jobs are held."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"disabled": True})
    click.echo(f"{name} is disabled; pending jobs are held, running jobs go on", err=True)


@users.command()
@click.argument("name")
def enable(name: str) -> None:
    """Enable the user NAME again. Release held jobs with `phalanx release`."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"disabled": False})
    click.echo(f"{name} is enabled; `phalanx release JOB` lets held jobs start", err=True)


@users.command("unix-user")
@click.argument("name")
@click.argument("unix_user", metavar="UNIX_USER")
def unix_user(name: str, unix_user: str) -> None:
    """Run the tasks of jobs that the user NAME submits from now on as UNIX_USER; '' removes the setting."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"unix_user": unix_user})


def _new_password() -> str:
    return asked_password("New password", confirm=True)


def asked_password(prompt: str, confirm: bool = False, optional: bool = False) -> str:
    """A password that is typed, or the next line of a pipe."""
    if sys.stdin.isatty():
        default = "" if optional else None
        return str(
            click.prompt(prompt, default, hide_input=True, confirmation_prompt=confirm, show_default=False, err=True)
        )
    return sys.stdin.readline().rstrip("\n")


def _words(role: str, queue: str) -> str:
    return f"{role} {_where(queue)}" if role else "with no role yet"


def _where(queue: str) -> str:
    return f"of {queue} and all below it" if queue else "everywhere"


def _role_path(name: str, queue: str) -> str:
    return f"/users/{quote(name, safe='')}/roles/{quote(queue) or '-'}"


def _row(user: dict[str, Any]) -> dict[str, Any]:
    granted = [f"{role['role']}@{role['queue'] or '*'}" for role in user.get("roles") or ()]
    return {**user, "granted": granted, "disabled": user.get("disabled", False)}
