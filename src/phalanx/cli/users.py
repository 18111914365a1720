"""`phalanx users`: who may do what."""

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
    """List the users with their roles; see also `users add|remove|grant|revoke|password|disable|enable|unix-user`."""
    if ctx.invoked_subcommand is None:
        emit([_row(user) for user in connect().get("/users")["items"]], COLUMNS, output)


@users.command()
@click.argument("name")
@click.option("--password", is_flag=True, help="Ask for a password. Without one, the user logs in by tokens only.")
@click.option("--role", type=ROLES, help="A role to begin with.")
@click.option(
    "--queue",
    default="",
    shell_complete=queue_names,
    help="Where the role holds: a queue and all below it. Default: everywhere.",
)
@click.option("--unix-user", default="", help="The Unix user that their tasks run as. Default: none of their own.")
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
    """Remove the user NAME with all tokens."""
    connect().change("DELETE", f"/users/{quote(name, safe='')}")
    click.echo(f"removed {name}; waiting jobs are cancelled, those that run go on", err=True)


@users.command()
@click.argument("name")
@click.argument("role", type=ROLES)
@click.option("--queue", default="", shell_complete=queue_names, help="A queue and all below it. Default: everywhere.")
def grant(name: str, role: str, queue: str) -> None:
    """Give the user NAME a role."""
    connect().change("PUT", _role_path(name, queue), {"role": role})
    click.echo(f"{name} is {_words(role, queue)}", err=True)


@users.command()
@click.argument("name")
@click.option("--queue", default="", shell_complete=queue_names, help="A queue and all below it. Default: everywhere.")
def revoke(name: str, queue: str) -> None:
    """Take the role of the user NAME at a queue away."""
    connect().change("DELETE", _role_path(name, queue))
    click.echo(f"{name} has no role {_where(queue)} any more", err=True)


@users.command()
@click.argument("name")
def password(name: str) -> None:
    """Set the password of the user NAME, which is asked for: your own after the current one, another's as an admin."""
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
    """Shut the user NAME out: no token and no password lets them in, and their waiting jobs are held."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"disabled": True})
    click.echo(f"{name} is shut out; waiting jobs are held, those that run go on", err=True)


@users.command()
@click.argument("name")
def enable(name: str) -> None:
    """Let the user NAME in again. Jobs that were held are let go by `phalanx release`."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"disabled": False})
    click.echo(f"{name} may come in again; `phalanx release JOB` lets held jobs start", err=True)


@users.command("unix-user")
@click.argument("name")
@click.argument("unix_user", metavar="UNIX_USER")
def unix_user(name: str, unix_user: str) -> None:
    """Have the tasks of the user NAME run as UNIX_USER from their next submission on; '' is none of their own."""
    connect().change("PATCH", f"/users/{quote(name, safe='')}", {"unix_user": unix_user})


def _new_password() -> str:
    return asked_password("New password", confirm=True)


def asked_password(prompt: str, confirm: bool = False, optional: bool = False) -> str:
    """A password that somebody types, or the next line of a pipe."""
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
