"""Labels: whether they are what a selector asks for."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.kube.objects.pod import LabelSelector, Selector


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects an object with some labels. None selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        meets(each, labels) for each in selector.match_expressions or ()
    )


def meets(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether some labels meet one requirement."""
    value, values = labels.get(selector.key), selector.values or []
    match selector.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(selector.operator, value, values)
        case _:
            return False


def _compares(operator: str, value: str | None, values: list[str]) -> bool:
    try:
        has, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return has > bound if operator == "Gt" else has < bound
