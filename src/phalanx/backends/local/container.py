"""Containers: the command line that runs a task in its image, by the first engine found on this machine.

podman and docker are run by the server's user, so nothing of a job may be taken for an option of theirs or reach their
own environment: values are joined to their options by `=`, `--` ends the options, and variables go by a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phalanx.errors import PhalanxError
from phalanx.workload.job import Execution

ENGINES = ("podman", "docker", "apptainer")

PROBES = {
    "podman": ("info",),
    "docker": ("version", "--format={{.Server.Version}}"),
    "apptainer": ("version",),
}
"""What an engine can only answer if it works: docker's program is often there without its service."""

PROBE_S = 20.0

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_REFERENCE = re.compile(
    rf"(?:docker://)?(?:{_HOST}/)?{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,128}})?"
)
"""A name in a registry or in the engine's store, as the distribution's reference has it."""

TRANSPORTS = (
    *("atomic", "containers-storage", "dir", "docker-archive", "docker-daemon"),
    *("oci", "oci-archive", "ostree", "sif", "tarball"),
)
"""Words before a colon by which podman reads files and other stores, as root. None is taken for an image with a tag."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class NoContainer(PhalanxError):  # noqa: N818
    """A job whose container cannot be run here."""


@dataclass(frozen=True, slots=True)
class Contained:
    """How a task runs in a container: the command, what precedes one beside it, and what clears up after it.

    `by_server` says that the engine is run by the server's user and takes on the job's for the container only.
    """

    argv: tuple[str, ...]
    enter: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    by_server: bool = False


def find_engine() -> str:
    """The container engine of this machine; empty if there is none."""
    return next((engine for engine in ENGINES if shutil.which(engine)), "")


def why_not() -> str:
    """Why no task can run in a container here; empty if it can. The engine that jobs would get is asked."""
    engine = find_engine()
    if not engine:
        return f"none of {', '.join(ENGINES)} is on the PATH"
    try:
        asked = subprocess.run(
            [engine, *PROBES[engine]], capture_output=True, text=True, errors="replace", timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{engine} does not work: {error}"
    if asked.returncode == 0:
        return ""
    said = asked.stderr.strip().splitlines()
    return f"{engine} does not work: {said[-1] if said else f'exit code {asked.returncode}'}"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container gets of this machine. An engine makes control groups of its own, so it must be told."""

    cpus_milli: int = 0
    memory_mb: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where and as which user a container runs: its name, the file with its variables, user and group by number (none
    for the server's own), what it sees of this machine, and where what the job itself names to be mounted is found.
    """

    name: str
    variables_path: str
    ids: Sequence[int]
    folders: Sequence[str]
    mounts: Sequence[tuple[str, str]]


def contain(execution: Execution, place: Place, limits: Limits) -> Contained:
    """Puts a task's command into its image."""
    engine = find_engine()
    if not engine:
        raise NoContainer(
            f"image '{execution.image}': this machine has none of {', '.join(ENGINES)}; "
            "install one, or leave out `image` to run the command as it is"
        )
    for path in (path for mount in execution.mounts for path in mount):
        if not path.startswith("/") or any(sign in path for sign in ":,\n"):
            raise NoContainer(f"mount '{path}': expected an absolute path without ':' and ','")
    if engine == "apptainer":
        return _apptainer(execution, place, limits.gpus)
    if not _REFERENCE.fullmatch(execution.image) or execution.image.partition(":")[0] in TRANSPORTS:
        raise NoContainer(f"image '{execution.image}': expected a name such as registry.example/team/image:tag")
    if engine == "docker" and place.ids and execution.mounts:
        raise NoContainer("mounts: docker's service would mount them as root; use podman, or leave them out")
    return _oci(engine, execution, place, limits)


def checked_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that a file of an engine can hold, a line each."""
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise NoContainer(f"env: '{name}': expected a name of letters, digits, '_', '.' and '-' for a container")
        if "\n" in value or "\r" in value or "\0" in value:
            raise NoContainer(f"env: the value of '{name}' has a line break, which container engines cannot take")
    return dict(variables)


def _oci(engine: str, execution: Execution, place: Place, limits: Limits) -> Contained:
    """podman and docker take the same words. The host's network is kept: the gang meets at an address of the host."""
    uid, gid = (place.ids[0], place.ids[1]) if place.ids else (os.getuid(), os.getgid())
    options = ["--rm", f"--name={place.name}", "--network=host", "--ipc=host", f"--user={uid}:{gid}"]
    options += ["--cap-drop=all", "--security-opt=no-new-privileges", f"--env-file={place.variables_path}"]
    if engine == "podman" and os.getuid():
        options.append("--userns=keep-id")
    options += (f"--volume={folder}:{folder}" for folder in place.folders)
    options += (f"--volume={source}:{target}" for source, target in place.mounts)
    if execution.workdir:
        options.append(f"--workdir={execution.workdir}")
    if limits.gpus:
        options.append("--device=nvidia.com/gpu=all" if engine == "podman" else "--gpus=all")
    if limits.cpus_milli:
        options.append(f"--cpus={limits.cpus_milli / 1000:g}")
    if limits.memory_mb:
        options.append(f"--memory={limits.memory_mb}m")
    if engine == "podman":
        options.append("--log-driver=passthrough")
    return Contained(
        (engine, "run", *options, "--", execution.image, *execution.command),
        (engine, "exec", "--interactive", place.name),
        (engine, "rm", "--force", place.name),
        by_server=True,
    )


def _apptainer(execution: Execution, place: Place, gpus: int) -> Contained:
    options = ["--nv"] if gpus else []
    options += (f"--bind={folder}:{folder}" for folder in place.folders)
    options += (f"--bind={source}:{target}" for source, target in execution.mounts)
    if execution.workdir:
        options.append(f"--pwd={execution.workdir}")
    verb = "exec" if execution.command else "run"
    return Contained(("apptainer", verb, *options, "--", execution.image, *execution.command))
