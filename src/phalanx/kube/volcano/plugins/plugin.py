"""What a plugin does: objects that a job has beside its pods, and what it changes in these."""

from __future__ import annotations

from typing import Protocol

from phalanx.kube.volcano.job import VolcanoJob
from phalanx.kube.volcano.manifests import Manifest

Arguments = tuple[str, ...]


class Plugin(Protocol):
    """A plugin, with the arguments that a job gives it."""

    def refusal(self, arguments: Arguments) -> str:
        """Why it cannot be run with these; empty if it can."""

    def objects(self, job: VolcanoJob, arguments: Arguments) -> list[Manifest]:
        """What is made before the pods."""

    def change(self, pod: Manifest, job: VolcanoJob, arguments: Arguments) -> None:
        """Changes a pod before it is made."""


def unknown(arguments: Arguments, known: tuple[str, ...]) -> str:
    """Says which argument there is not; empty if there are all."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name not in known:
            there = ", ".join(known) if known else "no arguments"
            return f"expected {there}, got {name}"
    return ""


def value_of(arguments: Arguments, name: str, default: str) -> str:
    """The value of an argument such as `--name=value`; one without a value is true."""
    for argument in arguments:
        said, _, value = argument.partition("=")
        if said == name:
            return value or "true"
    return default
