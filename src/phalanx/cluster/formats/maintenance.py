"""The `maintenance` of a cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from phalanx.cluster.cluster import Node
from phalanx.cluster.maintenance import Maintenance
from phalanx.document import Field
from phalanx.document.field import nearest

MAINTENANCE_KEYS = ("name", "nodes", "start", "for")
WINDOWS_MAX = 1_000
NODES_MAX = 10_000


def read_maintenance(field: Field, nodes: Sequence[Node], now_ms: int) -> tuple[Maintenance, ...]:
    """Reads the list of times. Moments such as `+2h` count from now."""
    found: dict[str, Maintenance] = {}
    for item in field.items(0, WINDOWS_MAX):
        window = _read_window(item, nodes, now_ms)
        if window.name in found:
            raise item.error(f"two entries are named {window.name!r}, expected names of their own")
        found[window.name] = window
    return tuple(found.values())


def _read_window(item: Field, nodes: Sequence[Node], now_ms: int) -> Maintenance:
    fields = item.mapping(MAINTENANCE_KEYS)
    start_ms = fields.need("start", lambda start: start.time_ms(now_ms))
    length_ms = fields.need("for", _length)
    meant = fields.need("nodes", lambda names: _read_nodes(names, nodes))
    return Maintenance(fields.need("name", Field.name), meant, start_ms, start_ms + length_ms)


def _length(field: Field) -> int:
    length_ms = field.duration_ms()
    if not length_ms:
        raise field.expected("a duration of more than nothing")
    return length_ms


def _read_nodes(field: Field, nodes: Sequence[Node]) -> tuple[str, ...]:
    """Nodes by their names, by patterns such as gpu-*, or by the domain they lie in."""
    found: dict[str, None] = {}
    for item in field.items(1, NODES_MAX):
        pattern = item.text()
        matching = [node.name for node in nodes if fnmatchcase(node.name, pattern) or pattern in node.path]
        if not matching:
            hint = nearest(pattern, [node.name for node in nodes])
            raise item.error(f"no such node or domain in this cluster, {hint}")
        found.update(dict.fromkeys(matching))
    return tuple(found)
