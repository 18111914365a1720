"""svc: has pods of a job find one another by name, and tells them the names."""

from __future__ import annotations

from phalanx.kube.volcano.job import TaskSpec, VolcanoJob
from phalanx.kube.volcano.manifests import Manifest, containers, host_name, mount, owned, selector
from phalanx.kube.volcano.plugins.plugin import Arguments, unknown, value_of

FOLDER = "/etc/volcano"
PUBLISH, OPEN = "--publish-not-ready-addresses", "--disable-network-policy"


class Svc:
    """The plugin."""

    def refusal(self, arguments: Arguments) -> str:
        """Only these arguments are known."""
        return unknown(arguments, (PUBLISH, OPEN))

    def objects(self, job: VolcanoJob, arguments: Arguments) -> list[Manifest]:
        """A headless Service, the names of all hosts, and who may reach the pods: they alone, unless it is open."""
        name, labels = job.metadata.name, selector(job)
        port = {"name": "placeholder-volcano", "port": 1, "protocol": "TCP", "targetPort": 1}
        is_published = value_of(arguments, PUBLISH, "false") == "true"
        spec = {"clusterIP": "None", "selector": labels, "ports": [port], "publishNotReadyAddresses": is_published}
        found = [
            owned(job, "v1", "Service", name, spec=spec),
            owned(job, "v1", "ConfigMap", f"{name}-svc", data=hosts_of(job)),
        ]
        if value_of(arguments, OPEN, "false") != "true":
            pods = {"matchLabels": labels}
            rule = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]}
            found.append(owned(job, "networking.k8s.io/v1", "NetworkPolicy", name, spec=rule))
        return found

    def change(self, pod: Manifest, job: VolcanoJob, arguments: Arguments) -> None:
        """Gives the pod its name in the Service, and the names of the others as files and variables."""
        spec, config = pod["spec"], f"{job.metadata.name}-svc"
        spec.setdefault("hostname", pod["metadata"]["name"])
        spec.setdefault("subdomain", job.metadata.name)
        keys = [key for task in job.tasks for key in (_variable(task, "HOSTS"), _variable(task, "NUM"))]
        for container in containers(spec):
            container.setdefault("env", []).extend(
                {"name": key, "valueFrom": {"configMapKeyRef": {"name": config, "key": key}}} for key in keys
            )
        mount(spec, config, {"configMap": {"name": config}}, FOLDER)


def hosts_of(job: VolcanoJob) -> dict[str, str]:
    """The hosts of each task, a line each as a file and with commas as a variable, and how many they are."""
    found = {}
    for task in job.tasks:
        hosts = [host_name(job, task, index) for index in range(task.replicas)]
        found[f"{task.name}.host"] = "\n".join(hosts)
        found[_variable(task, "HOSTS")] = ",".join(hosts)
        found[_variable(task, "NUM")] = str(task.replicas)
    return found


def _variable(task: TaskSpec, what: str) -> str:
    return f"VC_{task.name.upper().replace('-', '_')}_{what}"
