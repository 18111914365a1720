"""ssh: lets pods of a job log in to one another, by a key of the job's own."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from phalanx.kube.volcano.job import VolcanoJob
from phalanx.kube.volcano.manifests import Manifest, host_name, mount, owned
from phalanx.kube.volcano.plugins.plugin import Arguments, unknown, value_of

FOLDER = "--ssh-key-file-path"
FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")


class Ssh:
    """The plugin."""

    def refusal(self, arguments: Arguments) -> str:
        """Keys are made by ssh-keygen."""
        if shutil.which("ssh-keygen") is None:
            return "ssh-keygen is not on the PATH of phalanx: install it there (openssh-client)"
        return unknown(arguments, (FOLDER,))

    def objects(self, job: VolcanoJob, arguments: Arguments) -> list[Manifest]:
        """A Secret with the key."""
        private, public = new_key()
        data = {"id_rsa": private, "id_rsa.pub": public, "authorized_keys": public, "config": config_of(job)}
        return [owned(job, "v1", "Secret", _name(job), type="Opaque", stringData=data)]

    def change(self, pod: Manifest, job: VolcanoJob, arguments: Arguments) -> None:
        """Puts the key where ssh looks for it."""
        items = [{"key": name, "path": name} for name in FILES]
        secret = {"secretName": _name(job), "defaultMode": 0o600, "items": items}
        mount(pod["spec"], _name(job), {"secret": secret}, value_of(arguments, FOLDER, "/root/.ssh"))


def new_key() -> tuple[str, str]:
    """A private and a public key."""
    with tempfile.TemporaryDirectory(prefix="phalanx-ssh-") as folder:
        file = Path(folder) / "id_rsa"
        command = ["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "", "-C", "", "-f", str(file)]
        subprocess.run(command, check=True, capture_output=True)
        return file.read_text(), file.with_suffix(".pub").read_text()


def config_of(job: VolcanoJob) -> str:
    """Has every pod be reached by its name alone, whatever key its host shows: they are made anew with the pods."""
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task in job.tasks:
        for index in range(task.replicas):
            host = host_name(job, task, index)
            lines += [f"Host {host.partition('.')[0]}", f"  HostName {host}"]
    return "\n".join(lines) + "\n"


def _name(job: VolcanoJob) -> str:
    return f"{job.metadata.name}-ssh"
