"""Containers: the command line that runs a task in its image, by the first engine found on this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from phalanx.errors import PhalanxError
from phalanx.workload.job import Execution

ENGINES = ("podman", "docker", "apptainer")


class NoContainer(PhalanxError):  # noqa: N818
    """A job that names an image where none can be run."""


@dataclass(frozen=True, slots=True)
class Contained:
    """How a task runs in a container: the command, what precedes one beside it, and what clears up after it."""

    argv: tuple[str, ...]
    enter: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def find_engine() -> str:
    """The container engine of this machine; empty if there is none."""
    return next((engine for engine in ENGINES if shutil.which(engine)), "")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a container gets of this machine. An engine makes control groups of its own, so it must be told."""

    cpus_milli: int = 0
    memory_mb: int = 0
    gpus: int = 0


def contain(
    execution: Execution, name: str, env: dict[str, str], folders: tuple[str, ...], limits: Limits
) -> Contained:
    """Puts a task's command into its image. `folders` are what it must see of this machine beside its mounts."""
    engine = find_engine()
    if not engine:
        raise NoContainer(
            f"image '{execution.image}': this machine has none of {', '.join(ENGINES)}; "
            "install one, or leave out `image` to run the command as it is"
        )
    mounts = (*((folder, folder) for folder in folders), *execution.mounts)
    if engine == "apptainer":
        return _apptainer(execution, mounts, limits.gpus)
    return _oci(engine, execution, name, env, mounts, limits)


def _oci(
    engine: str,
    execution: Execution,
    name: str,
    env: dict[str, str],
    mounts: tuple[tuple[str, str], ...],
    limits: Limits,
) -> Contained:
    """podman and docker take the same words. The host's network is kept: the gang meets at an address of the host."""
    options = ["--rm", "--name", name, "--network", "host", "--ipc", "host", "--user", f"{os.getuid()}:{os.getgid()}"]
    for variable in sorted(env):
        # Named without a value: the engine takes it from its own environment, so no secret is on a command line.
        options += ["--env", variable]
    for source, target in mounts:
        options += ["--volume", f"{source}:{target}"]
    if execution.workdir:
        options += ["--workdir", execution.workdir]
    if limits.gpus:
        options += ["--device", "nvidia.com/gpu=all"] if engine == "podman" else ["--gpus", "all"]
    if limits.cpus_milli:
        options += ["--cpus", f"{limits.cpus_milli / 1000:g}"]
    if limits.memory_mb:
        options += ["--memory", f"{limits.memory_mb}m"]
    if engine == "podman":
        options += ["--log-driver", "passthrough"]
    return Contained(
        (engine, "run", *options, execution.image, *execution.command),
        (engine, "exec", "--interactive", name),
        (engine, "rm", "--force", name),
    )


def _apptainer(execution: Execution, mounts: tuple[tuple[str, str], ...], gpus: int) -> Contained:
    options = ["--nv"] if gpus else []
    for source, target in mounts:
        options += ["--bind", f"{source}:{target}"]
    if execution.workdir:
        options += ["--pwd", execution.workdir]
    verb = "exec" if execution.command else "run"
    return Contained(("apptainer", verb, *options, execution.image, *execution.command))
