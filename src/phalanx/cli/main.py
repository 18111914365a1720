"""The entry point: a table of verbs, each imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

import click

from phalanx.cli.exit import Exit
from phalanx.errors import PhalanxError


class Verb(NamedTuple):
    """Where a verb lives (`module:attribute`) and the line that `phalanx --help` shows for it."""

    target: str
    summary: str

    def load(self) -> click.Command:
        module_name, _, attribute = self.target.partition(":")
        command = getattr(import_module(module_name), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is a {type(command).__name__}, expected a click command")
        return command


VERBS: dict[str, Verb] = {
    "alerts": Verb("phalanx.cli.alerts:alerts", "List the alerts that fire now."),
    "apply": Verb("phalanx.cli.apply:apply", "Change cluster, queues or policy, after showing the difference."),
    "audit": Verb("phalanx.cli.audit:audit", "List who changed what, when, and from where."),
    "backends": Verb("phalanx.cli.backends:backends", "List what can carry jobs out here, and what each can do."),
    "bench": Verb("phalanx.cli.bench:bench", "Run a benchmark and print what it measured beside its target."),
    "cancel": Verb("phalanx.cli.cancel:cancel", "Have jobs leave, or never start."),
    "checkpoint": Verb("phalanx.cli.checkpoint:checkpoint", "List, verify, copy, reshard and compare checkpoints."),
    "compare": Verb("phalanx.cli.compare:compare", "Run a trace under several policies and put them side by side."),
    "completion": Verb("phalanx.cli.completion:completion", "Print the completion script of a shell."),
    "config": Verb("phalanx.cli.config:config", "Show and choose the servers you talk to."),
    "debug": Verb("phalanx.cli.debug:debug", "Take along what somebody else needs to see what happened here."),
    "demo": Verb("phalanx.cli.demo:demo", "Show a small cluster, a few jobs and the plan for them."),
    "drain": Verb("phalanx.cli.drain:drain", "Have nodes take no new work."),
    "events": Verb("phalanx.cli.events:events", "Print what happens, as it happens."),
    "exec": Verb("phalanx.cli.exec:exec", "Run a command beside a running task."),
    "hardware": Verb("phalanx.cli.hardware:hardware", "List the accelerators and instance types known here."),
    "history": Verb("phalanx.cli.history:history", "List jobs that are over, with what they took."),
    "import": Verb("phalanx.cli.import_:import_", "Turn the files of other systems into ours."),
    "hold": Verb("phalanx.cli.hold:hold", "Have waiting jobs not start."),
    "job": Verb("phalanx.cli.job:job", "Show all about one job."),
    "jobs": Verb("phalanx.cli.jobs:jobs", "List jobs."),
    "launch": Verb("phalanx.cli.launch:launch", "Start the ranks of a training, and start them again after failures."),
    "login": Verb("phalanx.cli.login:login", "Get a token from a server and keep it."),
    "logs": Verb("phalanx.cli.logs:logs", "Print what a job prints."),
    "nodes": Verb("phalanx.cli.nodes:nodes", "List nodes."),
    "plan": Verb("phalanx.cli.plan:plan", "Decide where a job would go, and change nothing."),
    "policies": Verb("phalanx.cli.policies:policies", "Compare the policies, and list their parameters."),
    "queues": Verb("phalanx.cli.queues:queues", "List queues."),
    "release": Verb("phalanx.cli.release:release", "Let held jobs start."),
    "replay": Verb("phalanx.cli.replay:replay", "Fold a journal again and verify that it decides the same."),
    "requeue": Verb("phalanx.cli.requeue:requeue", "Stop running jobs, and have them start again."),
    "reservations": Verb("phalanx.cli.reservations:reservations", "List what is promised to whom, and from when."),
    "resize": Verb("phalanx.cli.resize:resize", "Give a job more or fewer replicas."),
    "resume": Verb("phalanx.cli.requeue:resume", "Let suspended jobs start again."),
    "run": Verb("phalanx.cli.submit:run", "Submit a job, print what it prints, and wait for its end."),
    "save": Verb("phalanx.cli.save:save", "Have a running job save its work now."),
    "secrets": Verb("phalanx.cli.secrets:secrets", "List secrets, set them, and say which jobs may use them."),
    "simulate": Verb("phalanx.cli.simulate:simulate", "Run a trace on a cluster under a policy, in virtual time."),
    "size": Verb("phalanx.cli.size:size", "Say how many GPUs a service needs for a load and a latency."),
    "submit": Verb("phalanx.cli.submit:submit", "Submit a job."),
    "suspend": Verb("phalanx.cli.requeue:suspend", "Have running jobs give up their GPUs until they are resumed."),
    "tokens": Verb("phalanx.cli.tokens:tokens", "List, make and revoke tokens."),
    "top": Verb("phalanx.cli.top:top", "Show nodes and jobs full-screen."),
    "trace": Verb("phalanx.cli.trace:trace", "Describe traces, make synthetic ones, and convert those of others."),
    "up": Verb("phalanx.cli.up:up", "Start the server: the API, the store and the jobs on this machine."),
    "undrain": Verb("phalanx.cli.drain:undrain", "Let nodes take work again."),
    "update": Verb("phalanx.cli.update:update", "Change the priority, queue or times of pending jobs."),
    "usage": Verb("phalanx.cli.usage:usage", "Sum up GPU-hours by user, queue or job, with what was lost or idle."),
    "users": Verb("phalanx.cli.users:users", "List users, and say who may do what."),
    "wait": Verb("phalanx.cli.wait:wait", "Wait until jobs are over."),
    "what-if": Verb("phalanx.cli.what_if:what_if", "Show two futures, live or of a saved run: as it is, and what if."),
    "when": Verb("phalanx.cli.expected:when", "Say when a job starts, or ends."),
    "why": Verb("phalanx.cli.why:why", "Say why a job waits and what would make it start sooner."),
}


class VerbGroup(click.Group):
    """A group that knows its verbs by name and summary, so that help and a typing error load none of them."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        return verb.load() if verb else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in sorted(VERBS.items())])


@click.group(
    cls=VerbGroup,
    commands={name: click.Command(name, help=verb.summary) for name, verb in VERBS.items()},
    subcommand_metavar="VERB [ARGUMENTS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="phalanx", message="phalanx %(version)s")
def cli() -> None:
    """Schedule GPU clusters: decide which job runs where, carry it out, and say why."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; every error that a user can put right is one line on stderr."""
    sys.exit(run(cli, arguments))


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """The exit code of one call. A verb returns None, or an exit code where 0 would be wrong."""
    try:
        result = command.main(args=arguments, prog_name="phalanx", standalone_mode=False)
        # Flushed here, not when the interpreter ends, where nobody could catch a broken pipe.
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return complain("interrupted", Exit.INTERRUPTED)
    except PhalanxError as error:
        return complain(str(error), error.exit_code)
    except BrokenPipeError:
        drop_stdout()
        return Exit.ERROR
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), Exit.ERROR)
    return result if isinstance(result, int) else Exit.OK


def complain(message: str, exit_code: int) -> int:
    click.echo(f"phalanx: {message}", err=True)
    return exit_code


def drop_stdout() -> None:
    """`phalanx jobs | head -1` ends quietly: what is still buffered has no reader, so it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
