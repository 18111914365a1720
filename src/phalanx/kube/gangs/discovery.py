"""Discovery: which dialects of PodGroups an API server has."""

from __future__ import annotations

from phalanx.kube.api.client import Client
from phalanx.kube.api.errors import NotFoundError
from phalanx.kube.gangs.groups import NATIVE, PLUGINS, VOLCANO
from phalanx.kube.objects.meta import Named, Wire


class ApiGroup(Wire, frozen=True):
    """The versions of an API group that a server has, the preferred one first."""

    versions: list[dict[str, str]] | None = None


class ApiResources(Wire, frozen=True):
    """What one version of an API group has."""

    resources: list[Named] | None = None


def served_groups(client: Client) -> dict[str, str]:
    """Where the PodGroups are of each dialect that the server has."""
    found = {}
    for dialect in (NATIVE, PLUGINS, VOLCANO):
        try:
            versions = client.get(f"/apis/{dialect}", ApiGroup).versions or ()
        except NotFoundError:
            continue
        for version in versions:
            path = f"/apis/{dialect}/{version.get('version', '')}"
            if any(each.name == "podgroups" for each in client.get(path, ApiResources).resources or ()):
                found[dialect] = f"{path}/podgroups"
                break
    return found
