"""What all objects have: names, labels, versions, conditions."""

from __future__ import annotations

import msgspec

Labels = dict[str, str]
Resources = dict[str, str | int | float]


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """An object of the API. Its `managedFields` and everything else that is not named are dropped on receipt."""


class Owner(Wire, frozen=True):
    """A reference to the object that a pod belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Wire, frozen=True):
    """Names, labels and the version of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    annotations: Labels | None = None
    owner_references: list[Owner] | None = None

    @property
    def key(self) -> str:
        """The namespace and the name, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Stored(Wire, frozen=True):
    """Anything that the API server keeps."""

    metadata: Metadata = Metadata()


class Named(Wire, frozen=True):
    """Anything of which only the name matters."""

    name: str = ""


class Condition(Wire, frozen=True):
    """One condition of an object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Bookmark(Wire, frozen=True):
    """The version up to which a watch has told everything, or a status with its code."""

    metadata: Metadata = Metadata()
    code: int = 0
    reason: str = ""
    message: str = ""


class ListMetadata(Wire, frozen=True):
    """The version of a list, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
