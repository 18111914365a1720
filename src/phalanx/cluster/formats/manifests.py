"""Manifests: the objects of a Kubernetes file, one a document, or those of its Lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.cluster.formats.limits import CLUSTER_LIMITS, LABELS_MAX, QUEUES_MAX
from phalanx.document import DocumentError, Field, Fields, read_document

LISTS = ("List", "QueueList")
KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
LIST_KEYS = ("apiVersion", "kind", "metadata", "items")
METADATA_KEYS = (
    "name",
    "labels",
    "annotations",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "finalizers",
    "ownerReferences",
)
"""What people write about an object, and then what the API server does, which says nothing of what it is."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_BOUNDARY = re.compile(r"^(?:---|\.\.\.)(?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object. `remarks` are its labels and annotations in words."""

    place: Field
    name: str
    remarks: tuple[str, ...]
    fields: Fields


def read_manifests(text: str, source: str, api: str, kind: str) -> tuple[Manifest, ...]:
    """The objects of a file, all of one kind, of any version of its API."""
    found = [
        _read(item, api, kind)
        for document in _documents(text)
        for item in _items(read_document(document, source, CLUSTER_LIMITS))
    ]
    if not found:
        raise DocumentError(source, 1, f"expected at least one {kind} of {api}, got none")
    return tuple(found)


def _read(item: Field, api: str, kind: str) -> Manifest:
    fields = item.mapping(KEYS)
    written = fields.need("apiVersion", Field.text), fields.need("kind", Field.text)
    if (written[0].partition("/")[0], written[1]) != (api, kind):
        raise item.error(f"expected a {kind} of {api}, got a {written[1]} of {written[0]}")
    metadata = fields.need("metadata", lambda metadata: metadata.mapping(METADATA_KEYS))
    return Manifest(item, metadata.need("name", Field.name), tuple(_remarks(metadata)), fields)


def _remarks(metadata: Fields) -> Iterator[str]:
    for key in ("labels", "annotations"):
        for name, value in metadata.get(key, lambda field: field.pairs(LABELS_MAX), ()):
            if name != LAST_APPLIED:
                yield f"{key[:-1]} {name}: {value}"


def _documents(text: str) -> Iterator[str]:
    """The text of each document, behind as many line ends as stand before it, so that errors name the right line."""
    start = 0
    boundaries = [(match.start(), match.end()) for match in _BOUNDARY.finditer(text)]
    for end, after in [*boundaries, (len(text), len(text))]:
        body = text[start:end]
        if any(line.strip() and not line.lstrip().startswith("#") for line in body.splitlines()):
            yield "\n" * text.count("\n", 0, start) + body
        start = after


def _items(root: Field) -> tuple[Field, ...]:
    if root.has("items"):
        fields = root.mapping(LIST_KEYS)
        fields.need("kind", lambda kind: kind.choice(LISTS))
        return fields["items"].items(0, QUEUES_MAX)
    return (root,)
