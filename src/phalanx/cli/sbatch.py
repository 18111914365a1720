"""`phalanx sbatch`: batch scripts of Slurm, submitted to any backend."""

from __future__ import annotations

import sys
from typing import Any

import click

from phalanx.cli.client import connect
from phalanx.cli.exit import Exit

OWN = ("dry-run", "queue", "wrap")
"""Options that are not for the job: phalanx's, and the one that takes the place of a script."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTION]... [SCRIPT [ARGUMENT]...]")
def sbatch(words: tuple[str, ...]) -> int:
    """Submit SCRIPT, or stdin, with its #SBATCH lines, whatever backend runs the jobs.

    OPTIONs are those of Slurm's sbatch, and count before those of SCRIPT. One that cannot be honoured is named on
    stderr, or refused if the job would compute something else. The script runs in every task; `srun COMMAND` in it runs
    COMMAND once in each. `--dry-run` prints the job file, `--queue QUEUE` chooses a queue; without it the queue is that
    called as the account or partition.
    """
    from phalanx.workload.formats.sbatch import parse_options, read_sbatch

    options, rest = parse_options(words, "command line")
    own = {option.name: option.value for option in options if option.name in OWN}
    script, source = _script(rest, own.get("wrap", ""))
    batch = read_sbatch(script, source, rest[1:], [option for option in options if option.name not in OWN])
    if own.get("queue"):
        batch.keys["queue"] = own["queue"]
    for line in batch.told:
        click.echo(f"not honoured: {line}", err=True)
    if "dry-run" in own or "test-only" in batch.flags:
        from phalanx.cli.output import as_yaml

        click.echo(as_yaml(batch.keys), nl=False)
        return Exit.OK
    return _submit(batch.keys, batch.flags)


def _script(rest: list[str], wrap: str) -> tuple[str, str]:
    if wrap:
        return f"#!/bin/sh\n{wrap}\n", "wrap"
    if not rest:
        return sys.stdin.read(), "stdin"
    from phalanx.cli.files import text_of

    return text_of(rest[0]), rest[0]


def _submit(keys: dict[str, Any], flags: frozenset[str]) -> int:
    client = connect()
    if "queue" not in keys:
        _choose_queue(client, keys)
    draft = _settled(client, keys)
    made = client.post_yaml("/jobs", draft, forecast=True)
    number = made.get("array_of") or made["id"]
    click.echo(number if "parsable" in flags else f"Submitted batch job {number}")
    if "wait" in flags:
        from phalanx.cli.attend import attend

        return next((ended.code for ended in list(attend(client, [made], False)) if ended.code), Exit.OK)
    return Exit.OK


def _settled(client: Any, keys: dict[str, Any]) -> str:
    """The job as it is sent: in this folder, and with the PATH of this shell, where the server is here."""
    from phalanx.cli.job_wish import _settle
    from phalanx.cli.new_job import NewJob

    draft = NewJob()
    inherit = keys.pop("inherit_env", None)
    for key, value in keys.items():
        draft.put([key], value)
    _settle(draft, inherit, client)
    return draft.sent


def _choose_queue(client: Any, keys: dict[str, Any]) -> None:
    """The queue that is called as the account or the partition, where there is one."""
    labels = keys.get("labels", {})
    wanted = [labels[name] for name in ("slurm/account", "slurm/partition") if name in labels]
    if not wanted:
        return
    known = {queue["name"] for queue in client.get("/queues")["items"]}
    found = next((name for name in wanted if name in known), None)
    if found is not None:
        keys["queue"] = found
    else:
        click.echo(f"no queue is called {' or '.join(wanted)}: the job goes to the queue 'default'", err=True)
