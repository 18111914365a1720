"""Places by one word: a node, or all nodes of a rack, a pod or whatever else there is above nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from phalanx.cluster.cluster import NODE, Cluster
from phalanx.document.field import nearest

SHOWN_MAX = 5


class UnknownPlace(ValueError):  # noqa: N818
    """A word that names no node and no domain, or more than one."""


def nodes_at(cluster: Cluster, words: Iterable[str]) -> tuple[str, ...]:
    """The nodes that some words mean, each once: `n3`, `rack:r3`, `r3` where nothing else is called so.

    Where several pods have a rack of that name, `rack:p0/r3` is the one in pod p0.
    """
    found: dict[str, None] = {}
    for word in words:
        found.update(dict.fromkeys(_nodes_at(cluster, word)))
    return tuple(found)


def _nodes_at(cluster: Cluster, word: str) -> list[str]:
    level, colon, name = word.partition(":")
    names = [node.name for node in cluster.nodes]
    if not colon or level == NODE:
        node = name if colon else word
        if node in set(names):
            return [node]
        if colon:
            raise UnknownPlace(f"there is no node {_cut(node)}: {nearest(node, names)}")
    elif level not in cluster.levels_above:
        raise UnknownPlace(f"{_cut(word)}: there is no level {_cut(level)}: {nearest(level, _levels(cluster))}")
    domains = _domains(cluster, level if colon else "")
    wanted = tuple((name if colon else word).split("/"))
    matching = {key: nodes for key, nodes in domains.items() if key[1][-len(wanted) :] == wanted}
    if len(matching) == 1:
        return next(iter(matching.values()))
    if not matching:
        raise UnknownPlace(_unknown(cluster, word, level if colon else "", domains, names))
    addresses = [f"{level}:{'/'.join(path)}" for level, path in matching]
    more = f" and {len(addresses) - SHOWN_MAX} more" * (len(addresses) > SHOWN_MAX)
    raise UnknownPlace(f"{_cut(word)} could be any of {', '.join(addresses[:SHOWN_MAX])}{more}: say which")


def _unknown(
    cluster: Cluster, word: str, level: str, domains: Iterable[tuple[str, tuple[str, ...]]], names: list[str]
) -> str:
    if level:
        known = list(dict.fromkeys(path[-1] for _, path in domains))
        return f"there is no {level} {_cut(word.partition(':')[2])}: {nearest(word.partition(':')[2], known)}"
    some = list(dict.fromkeys(f"{each}:{path[-1]}" for each, path in domains))[:SHOWN_MAX] or [f"{NODE}:{names[0]}"]
    return (
        f"there is no node {_cut(word)}: {nearest(word, names)}. A word is a node, or LEVEL:NAME of the levels "
        f"{', '.join(_levels(cluster))}, such as {', '.join(some)}"
    )


def _levels(cluster: Cluster) -> list[str]:
    return [*cluster.levels_above, NODE]


def _domains(cluster: Cluster, level: str) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """The nodes of every domain of a level, or of all, by level and the names from the outermost inwards."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for node in cluster.nodes:
        for key in _around(node.path, cluster.levels_above):
            if not level or key[0] == level:
                found.setdefault(key, []).append(node.name)
    return found


def _around(path: tuple[str, ...], levels: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for depth, name in enumerate(path):
        if name:
            yield levels[depth], tuple(each for each in path[: depth + 1] if each)


def _cut(word: str) -> str:
    return repr(word[:200])
