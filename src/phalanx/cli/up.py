"""`phalanx up`: the server with its store and its backend, in one process tree."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import click

from phalanx.cli.complete import policy_names
from phalanx.cli.context import config_path
from phalanx.cli.output import Output, as_json, as_yaml, say
from phalanx.cli.reliability.options import SECONDS
from phalanx.cli.simulated import banner_of, gpus_line
from phalanx.errors import PhalanxError
from phalanx.folders import default_data

if TYPE_CHECKING:
    from phalanx.server.options import Options


class ListenError(PhalanxError):
    """An address that no server can listen at."""


@click.command()
@click.option(
    "--data",
    metavar="DIR",
    help="Data directory. Default: ~/.local/state/phalanx; /var/lib/phalanx for root.",
)
@click.option(
    "--listen",
    default="127.0.0.1:8470",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on. Port 0 picks a free port.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 10_000), help="Number of simulated nodes. On a machine with GPUs, add --simulate."
)
@click.option(
    "--gpus",
    type=click.IntRange(0, 64),
    help="GPUs per simulated node. 0 without --nodes: this machine without its GPUs.",
)
@click.option("--simulate", is_flag=True, help="Simulate nodes and GPUs, even if this machine has GPUs.")
@click.option("--cluster", metavar="FILE", help="Cluster file for the first start. Later, use `apply`.")
@click.option(
    "--policy",
    default="",
    shell_complete=policy_names,
    metavar="NAME[:key=value,…]",
    help="Scheduling policy for the first start.",
)
@click.option("--backend", default="local", show_default=True, help="Backend that runs jobs; `rehearsal` runs nothing.")
@click.option(
    "--store",
    default="",
    metavar="URL",
    envvar="PHALANX_STORE",
    help="PostgreSQL database to use instead of the embedded store. If it has a password, set PHALANX_STORE instead.",
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of HTTP processes.")
@click.option("--tls-cert", default="", metavar="FILE", help="Serve HTTPS with this certificate.")
@click.option("--tls-key", default="", metavar="FILE", help="Private key of the certificate.")
@click.option("--alerts", default="", metavar="FILE", help="Alert rules for GPUs, jobs and nodes.")
@click.option("--prometheus", default="", metavar="URL", help="Prometheus server to query for the load of services.")
@click.option(
    "--url",
    default="",
    metavar="URL",
    help="URL at which jobs and users reach the server, if it is not the --listen address.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDR[,…]",
    help="Trust X-Forwarded-For from this address or network. Default: from none.",
)
@click.option("--job-user", default="", metavar="NAME", help="Unix user of tasks whose user has no Unix user.")
@click.option(
    "--turn",
    "turn_s",
    type=click.IntRange(1, 86_400),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Length of a turn on a GPU that jobs use in turns.",
)
@click.option(
    "--quarantine",
    type=click.FloatRange(0, 0.5),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Quarantine nodes on which far more jobs fail than elsewhere, at most this share of all nodes. 0: none.",
)
@click.option(
    "--quarantine-time",
    "quarantine_s",
    type=SECONDS,
    default="30m",
    show_default=True,
    metavar="TIME",
    help="Length of a node's first quarantine; each further one takes twice as long.",
)
@click.option(
    "--canary",
    default="",
    metavar="FILE",
    help="Job file of one task that a node in quarantine has to run well before it takes other work again.",
)
@click.option(
    "--request-timeout",
    "request_timeout_s",
    type=click.IntRange(1, 3_600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time for a request to arrive, body included.",
)
@click.option("--ready-file", default="", metavar="FILE", help="Write what `-o json` prints to this file, when ready.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="What to print when ready."
)
def up(
    data: str | None,
    listen: str,
    nodes: int | None,
    gpus: int | None,
    simulate: bool,
    cluster: str | None,
    policy: str,
    backend: str,
    store: str,
    workers: int,
    tls_cert: str,
    tls_key: str,
    alerts: str,
    prometheus: str,
    url: str,
    proxies: tuple[str, ...],
    job_user: str,
    turn_s: int,
    quarantine: float,
    quarantine_s: float,
    canary: str,
    request_timeout_s: int,
    ready_file: str,
    output: Output,
) -> int:
    """Run a server on this machine until it is interrupted. Jobs keep running without it; the next start finds them."""
    from phalanx.server.options import Options
    from phalanx.server.up import up as run

    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if canary and not quarantine:
        raise click.UsageError("--canary needs --quarantine SHARE: without it no node is in quarantine")
    if cluster and (simulate or nodes is not None or gpus is not None):
        raise click.UsageError("--cluster says which nodes there are: leave out --nodes, --gpus and --simulate")
    host, port = address_of(listen)
    _warn_of_password(store)
    options = Options(
        data=data or default_data(),
        host=host,
        port=port,
        store=store,
        cluster=_absolute(cluster or ""),
        nodes=nodes,
        gpus=gpus,
        simulate=simulate,
        policy=policy,
        backend=backend,
        workers=workers,
        tls_cert=_absolute(tls_cert),
        tls_key=_absolute(tls_key),
        alerts=_absolute(alerts),
        prometheus=_checked_url(prometheus, "--prometheus"),
        public_url=_checked_url(url, "--url"),
        proxies=_networks(proxies),
        job_user=_known_user(job_user),
        private=_private(),
        turn_s=turn_s,
        quarantine=quarantine,
        quarantine_s=quarantine_s,
        canary=_canary_in(canary),
        request_timeout_s=request_timeout_s,
    )
    first = not options.file("admin.token").exists()

    def tell_ready(ready: Options) -> None:
        if ready_file:
            write_whole(ready_file, as_json(_ready(ready)))
        _announce(ready, output, first)

    return run(options, tell_ready, lambda line: say(f"phalanx: {line}", err=True))


def _canary_in(path: str) -> str:
    """The content of the job file of canaries, which is read before anything starts."""
    if not path:
        return ""
    from phalanx.faults.health.canary import CanaryError, read_canary

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CanaryError(f"--canary {path}: cannot be read: {error}") from None
    read_canary(text, path)
    return text


def address_of(text: str) -> tuple[str, int]:
    """HOST:PORT, PORT, or [IPv6]:PORT."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535 or not host:
        raise ListenError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:8470")
    return host, int(port)


def _warn_of_password(store: str) -> None:
    """Arguments are seen by every user of the machine."""
    from phalanx.server.store.database import has_password

    source = click.get_current_context().get_parameter_source("store")
    if source is click.core.ParameterSource.COMMANDLINE and has_password(store):
        told = "other users of this machine see it: set PHALANX_STORE to the URL instead, or keep it in ~/.pgpass"
        click.echo(f"phalanx: warning: --store has a password, and {told}", err=True)


def _checked_url(url: str, option: str) -> str:
    if url and not url.startswith(("http://", "https://")):
        raise ListenError(f"{option} {url}: expected http://HOST:PORT or https://HOST")
    return url.rstrip("/")


def _networks(texts: tuple[str, ...]) -> tuple[str, ...]:
    words = [word.strip() for text in texts for word in text.split(",")]
    try:
        return tuple(str(ip_network(word)) for word in words)
    except ValueError as error:
        raise ListenError(f"--proxy {error}: expected an address such as 10.0.0.7, or a network: 10.0.0.0/24") from None


def _known_user(name: str) -> str:
    """A Unix user that this server can run tasks as."""
    from phalanx.backends.local.host.unix_user import identity_named

    if name:
        identity_named(name)
    return name


def _private() -> tuple[str, ...]:
    """Where the client of the server's user keeps tokens: made now, so that it can be kept from jobs."""
    path = config_path()
    if os.environ.get("PHALANX_CONFIG"):
        return (os.path.abspath(path),)
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return (folder, os.path.expanduser("~/.pgpass"))


def _absolute(path: str) -> str:
    return os.path.abspath(path) if path else ""


def _ready(options: Options) -> dict[str, Any]:
    from phalanx.server.cluster.simulated import gpus_left, simulated_nodes

    trust = {"ca_file": options.tls_cert} if options.tls_cert else {}
    told = {"url": options.url, "token_file": str(options.file("admin.token")), "pid": os.getpid()}
    nodes = {"simulated_nodes": simulated_nodes(options.file("run")), "gpus": gpus_left(options.file("run"))}
    return {**told, **nodes, **trust}


def write_whole(path: str, content: str) -> None:
    """A program that waits for the file finds all of it, and a link of another user leads nowhere."""
    with suppress(FileNotFoundError):
        os.unlink(f"{path}.new")
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(content)
    os.replace(f"{path}.new", path)


def _announce(options: Options, output: Output, first: bool) -> None:
    token_file, ready = options.file("admin.token"), _ready(options)
    # What is no terminal is a log, which more users may read than the file.
    shows_token = first and sys.stdout.isatty()
    banner = banner_of(ready["simulated_nodes"]) or gpus_line(ready["gpus"])
    if output == "json":
        import json

        click.echo(json.dumps(ready))
    elif output == "yaml":
        click.echo(as_yaml(ready), nl=False)
    else:
        click.echo(
            f"phalanx is ready at {options.url}\n\n"
            f"  export PHALANX_ADDR={options.url}\n"
            f"  export PHALANX_TOKEN_FILE={token_file}\n"
            + (f"  export PHALANX_CA_FILE={options.tls_cert}\n" if options.tls_cert else "")
            + "  phalanx run --template hello\n\n"
            + (f"{banner}\n\n" if banner else "")
            + (f"The admin's token, shown this once: {token_file.read_text().strip()}\n" if shows_token else "")
            + f"The admin's token is in {token_file}: keep it to yourself. Logs are in {options.file('log')}.\n"
            + "Ctrl-C stops the server and leaves running jobs alone."
        )
