"""The table of verbs, each imported only when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click

from phalanx.cli.exit import Exit
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


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
    "alerts": Verb("phalanx.cli.alerts:alerts", "List firing alerts."),
    "apply": Verb("phalanx.cli.apply:apply", "Change cluster, queues or policy, after showing the difference."),
    "attach": Verb("phalanx.cli.attach:attach", "Attach to the terminal of a running task."),
    "audit": Verb("phalanx.cli.audit:audit", "List the audit log: the changes that users asked for."),
    "autoscale": Verb("phalanx.cli.autoscale:autoscale", "Size groups of nodes by the pending jobs."),
    "backends": Verb("phalanx.cli.backends:backends", "List the backends on this machine and their capabilities."),
    "bench": Verb("phalanx.cli.bench:bench", "Run a benchmark and print its results beside their targets."),
    "cancel": Verb("phalanx.cli.cancel:cancel", "Cancel pending or running jobs."),
    "capacity": Verb("phalanx.cli.capacity:capacity", "Find how many nodes keep waits below a target."),
    "checkpoint": Verb("phalanx.cli.checkpoint:checkpoint", "List, verify, copy, reshard and compare checkpoints."),
    "compare": Verb("phalanx.cli.compare:compare", "Run a trace under several policies and compare the results."),
    "completion": Verb("phalanx.cli.completion:completion", "Print the completion script of a shell."),
    "config": Verb("phalanx.cli.config:config", "Show the contexts and choose the server that verbs use."),
    "cost": Verb("phalanx.cli.cost.verb:cost", "Calculate what spot capacity costs, and whether owning GPUs pays."),
    "debug": Verb("phalanx.cli.debug:debug", "Collect logs, metrics and the journal for a bug report."),
    "demo": Verb("phalanx.cli.demo:demo", "Show the decisions for a few jobs on a small cluster."),
    "drain": Verb("phalanx.cli.drain:drain", "Drain nodes: they take no new work."),
    "events": Verb("phalanx.cli.events:events", "Print events as they happen."),
    "exec": Verb("phalanx.cli.exec:exec", "Run a command beside a running task."),
    "export": Verb("phalanx.cli.export:export", "Convert a job file to manifests of other systems."),
    "forward": Verb("phalanx.cli.forward:forward", "Forward a port of this machine to a running task."),
    "hardware": Verb("phalanx.cli.hardware:hardware", "List the known accelerators and instance types."),
    "health": Verb("phalanx.cli.health:health", "Check whether this machine is fit for jobs."),
    "history": Verb("phalanx.cli.history:history", "List finished jobs and what they used."),
    "import": Verb("phalanx.cli.import_:import_", "Convert files of other schedulers."),
    "hold": Verb("phalanx.cli.hold:hold", "Hold pending jobs, so that they do not start."),
    "job": Verb("phalanx.cli.job:job", "Show the details of a job."),
    "jobs": Verb("phalanx.cli.jobs:jobs", "List pending and running jobs."),
    "kube": Verb("phalanx.cli.kube:kube", "Schedule the pods of a Kubernetes cluster, or look on as another does."),
    "launch": Verb("phalanx.cli.launch:launch", "Start the ranks of a training job, and restart them after failures."),
    "login": Verb("phalanx.cli.login:login", "Log in to a server and store the token."),
    "logs": Verb("phalanx.cli.logs:logs", "Print the output of a job."),
    "nodes": Verb("phalanx.cli.nodes:nodes", "List the nodes with their health and GPUs in use."),
    "plan": Verb("phalanx.cli.plan:plan", "Show where a job would be placed, without submitting it."),
    "platforms": Verb("phalanx.cli.platforms:platforms", "Write a job for other platforms, with their prices."),
    "policies": Verb("phalanx.cli.policies:policies", "Compare policies and list their parameters."),
    "postmortem": Verb(
        "phalanx.cli.postmortem:postmortem", "Explain where the time of a job went, and what would have saved it."
    ),
    "queues": Verb("phalanx.cli.queues:queues", "List the queues with their quotas and use."),
    "release": Verb("phalanx.cli.release:release", "Release held jobs."),
    "reliability": Verb(
        "phalanx.cli.reliability.verb:reliability", "Calculate what failures cost, and design for them."
    ),
    "replay": Verb("phalanx.cli.replay:replay", "Replay a journal and verify its decisions."),
    "requeue": Verb("phalanx.cli.requeue:requeue", "Stop running jobs and queue them again."),
    "reservations": Verb(
        "phalanx.cli.reservations:reservations", "List reservations: which job gets which nodes, and when."
    ),
    "resize": Verb("phalanx.cli.resize:resize", "Change the number of replicas of a job."),
    "resume": Verb("phalanx.cli.requeue:resume", "Resume suspended jobs."),
    "run": Verb("phalanx.cli.run:run", "Submit a job, print its output, and wait for it to finish."),
    "save": Verb("phalanx.cli.save:save", "Ask a running job to save a checkpoint now."),
    "sbatch": Verb("phalanx.cli.sbatch:sbatch", "Submit a batch script of Slurm."),
    "scancel": Verb("phalanx.cli.slurm_views:scancel", "Cancel jobs, with the options of Slurm's scancel."),
    "secrets": Verb("phalanx.cli.secrets:secrets", "Manage secrets and which jobs may use them."),
    "simulate": Verb("phalanx.cli.simulate:simulate", "Run a trace on a cluster under a policy, in virtual time."),
    "sinfo": Verb("phalanx.cli.slurm_views:sinfo", "List nodes by state, as Slurm's sinfo does."),
    "size": Verb("phalanx.cli.size:size", "Calculate how many GPUs a service needs for a load and a latency."),
    "slurm": Verb(
        "phalanx.cli.slurm:slurm", "Look at a Slurm cluster: snapshots, and a shadow that decides beside it."
    ),
    "squeue": Verb("phalanx.cli.slurm_views:squeue", "List jobs, as Slurm's squeue does."),
    "submit": Verb("phalanx.cli.submit:submit", "Submit a job."),
    "suspend": Verb("phalanx.cli.requeue:suspend", "Suspend jobs: they free their GPUs until they are resumed."),
    "tokens": Verb("phalanx.cli.tokens:tokens", "List, create and revoke tokens."),
    "top": Verb("phalanx.cli.top:top", "Show nodes and jobs full-screen."),
    "trace": Verb("phalanx.cli.trace:trace", "Describe, generate and convert traces."),
    "up": Verb("phalanx.cli.up:up", "Start the server: the API, the store and the jobs on this machine."),
    "undrain": Verb("phalanx.cli.drain:undrain", "Return drained nodes to service."),
    "update": Verb("phalanx.cli.update:update", "Change the priority, queue or times of pending jobs."),
    "usage": Verb("phalanx.cli.usage:usage", "Sum up GPU-hours by user, queue or job, with lost and idle hours."),
    "users": Verb("phalanx.cli.users:users", "Manage users and their roles."),
    "view": Verb("phalanx.cli.view:view", "Open a debug bundle or a journal in the page."),
    "wait": Verb("phalanx.cli.wait:wait", "Wait for jobs to finish."),
    "what-if": Verb("phalanx.cli.what_if:what_if", "Compare two forecasts: without and with a change."),
    "when": Verb("phalanx.cli.expected:when", "Show when a job is expected to start or end."),
    "whoami": Verb("phalanx.cli.whoami:whoami", "Show your user, roles and scopes on the server."),
    "why": Verb("phalanx.cli.why:why", "Explain why a job is pending and what would start it sooner."),
}


ELSEWHERE = {
    "kill": "cancel",
    "ps": "jobs",
    "sacct": "history",
    "sreport": "usage",
    "srun": "run",
    "status": "jobs",
}
"""Commands of Slurm and other schedulers, by the verb that does the same here."""


class VerbGroup(click.Group):
    """A group that knows its verbs by name and summary, so that help, completion and typing errors load none."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        return verb.load() if verb else None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{ELSEWHERE[args[0]]}'?")
        if args and args[0] not in VERBS:
            # Those that come near it are named in the error.
            self.commands = {name: click.Command(name) for name in VERBS}
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from phalanx.cli.complete import matching

        verbs = matching({name: verb.summary for name, verb in sorted(VERBS.items())}, incomplete)
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.summary) for name, verb in sorted(VERBS.items())])


@click.group(
    cls=VerbGroup,
    subcommand_metavar="VERB [ARGUMENTS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="phalanx", message="phalanx %(version)s")
def cli() -> None:
    """Schedule jobs on GPU clusters: decide where each job runs, run it, and explain why."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; every error that a user can put right is one line on stderr."""
    sys.exit(run(cli, arguments))


def run(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """The exit code of one call. A verb returns None, or an exit code where 0 would be wrong."""
    try:
        result = command.main(args=arguments, prog_name="phalanx", standalone_mode=False)
        # Flushed here, not when the interpreter ends, where a broken pipe could not be caught.
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
    except UnicodeEncodeError as error:
        return complain(f"{not_text(arguments or sys.argv[1:]) or error}: expected UTF-8 text", Exit.USAGE)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), Exit.ERROR)
    return result if isinstance(result, int) else Exit.OK


def not_text(arguments: Sequence[str]) -> str:
    """The first argument that is not UTF-8, with its bytes as they were given."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            return f"argument {str(os.fsencode(argument))[1:]}"
    return ""


def complain(message: str, exit_code: int) -> int:
    from phalanx.cli.output import say

    say(f"phalanx: {message}", err=True)
    return exit_code


def drop_stdout() -> None:
    """`phalanx jobs | head -1` ends quietly: what is still buffered has no reader, so it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
