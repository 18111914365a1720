"""env: tells each pod its number within its task."""

from __future__ import annotations

from phalanx.kube.volcano.job import TASK_INDEX, VolcanoJob
from phalanx.kube.volcano.manifests import Manifest, containers
from phalanx.kube.volcano.plugins.plugin import Arguments, unknown

NAMES = ("VC_TASK_INDEX", "VK_TASK_INDEX")


class Env:
    """The plugin."""

    def refusal(self, arguments: Arguments) -> str:
        """It takes no arguments."""
        return unknown(arguments, ())

    def objects(self, job: VolcanoJob, arguments: Arguments) -> list[Manifest]:
        """None."""
        return []

    def change(self, pod: Manifest, job: VolcanoJob, arguments: Arguments) -> None:
        """Sets the variables in all containers."""
        index = pod["metadata"]["labels"][TASK_INDEX]
        for container in containers(pod["spec"]):
            container.setdefault("env", []).extend({"name": name, "value": index} for name in NAMES)
