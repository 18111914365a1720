"""Taints as people write them: `key=value:NoSchedule`, or a mapping with these three keys."""

from __future__ import annotations

from phalanx.cluster.cluster import Taint
from phalanx.cluster.formats.limits import TAINTS_MAX
from phalanx.document import Field

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINT_KEYS = ("key", "value", "effect")


def read_taints(field: Field) -> tuple[Taint, ...]:
    """The taints of a list."""
    return tuple(_taint(item) for item in field.items(0, TAINTS_MAX))


def _taint(field: Field) -> Taint:
    if not field.is_mapping:
        key, value, effect = taint_text(field)
        return Taint(key, value, effect or EFFECTS[0])
    taint = field.mapping(TAINT_KEYS)
    return Taint(
        taint.need("key", Field.title),
        taint.get("value", Field.text, ""),
        taint.get("effect", lambda effect: effect.choice(EFFECTS), EFFECTS[0]),
    )


def taint_text(field: Field) -> tuple[str, str, str]:
    """Key, value and effect of `key=value:effect`, in which value and effect may be left out."""
    rest, colon, effect = field.title().rpartition(":")
    key, _, value = (rest if colon else effect).partition("=")
    if not key or (colon and effect not in EFFECTS):
        raise field.expected(f"key=value:effect with an effect of {', '.join(EFFECTS)}")
    return key, value, effect if colon else ""
