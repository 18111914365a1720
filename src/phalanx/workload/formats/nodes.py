"""On which nodes tasks of a job file may run: labels that these must have, and taints that they may have."""

from __future__ import annotations

from phalanx.cluster.formats.taint import EFFECTS, taint_text
from phalanx.document import Field
from phalanx.workload.formats.limits import LABELS_MAX, TOLERATIONS_MAX
from phalanx.workload.job import NodePreference
from phalanx.workload.toleration import Toleration

TOLERATION_KEYS = ("key", "operator", "value", "effect")
OPERATORS = ("Exists", "Equal")

WEIGHT_MAX = 100
"""That of a preference, as Kubernetes bounds it."""


def read_labels(field: Field) -> tuple[tuple[str, str], ...]:
    """Names and values, in order of names."""
    return tuple(sorted(field.pairs(LABELS_MAX)))


def read_preferences(field: Field) -> tuple[NodePreference, ...]:
    """Labels as `name=value`, each with its weight."""
    return tuple(_read_preference(key, weight) for key, weight in field.entries(LABELS_MAX))


def _read_preference(key: str, weight: Field) -> NodePreference:
    label, equals, value = weight.key(key).partition("=")
    if not label or not equals:
        raise weight.error("expected a label with its value as the key, such as 'pool=fast: 10'")
    return NodePreference(label, value, weight.integer(-WEIGHT_MAX, WEIGHT_MAX))


def read_tolerations(field: Field) -> tuple[Toleration, ...]:
    """Taints as `key=value:effect`, or as Kubernetes writes them."""
    return tuple(_read_toleration(item) for item in field.items(0, TOLERATIONS_MAX))


def _read_toleration(field: Field) -> Toleration:
    if not field.is_mapping:
        return Toleration(*taint_text(field))
    fields = field.mapping(TOLERATION_KEYS)
    operator = fields.get("operator", lambda operator: operator.choice(OPERATORS), "")
    if operator == "Exists":
        fields.refuse(("value",), "expected no value beside operator Exists, which takes any")
    elif "key" not in fields:
        raise field.error("the key 'key' is missing; to tolerate everything write operator: Exists")
    return Toleration(
        fields.get("key", Field.title, ""),
        fields.get("value", Field.text, ""),
        fields.get("effect", lambda effect: effect.choice(EFFECTS), ""),
    )
