"""Domains of a cluster file: which rack lies in which pod, and which domains a node lies in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phalanx.cluster.formats.limits import DOMAINS_MAX, NODES_MAX
from phalanx.document import Field, Fields
from phalanx.document.field import is_name, nearest

DOMAIN_KEYS = ("name", "level", "parent")
SERIES_KEYS = ("nodes", "name")


@dataclass(frozen=True, slots=True)
class Declared:
    """One item of the list of `domains`."""

    field: Field
    name: str
    level: str
    parent: str


def read_domains(field: Field, levels: tuple[str, ...]) -> dict[str, Declared]:
    """Reads the list of `domains`, each of one of these levels (outermost first), by name."""
    domains: dict[str, Declared] = {}
    for item in field.items(0, DOMAINS_MAX):
        domain = _read_domain(item, levels)
        if domain.name in domains:
            first = domains[domain.name].field.line
            raise item.error(f"the domain '{domain.name}' is given twice, first on line {first}")
        domains[domain.name] = domain
    for domain in domains.values():
        if domain.parent and domain.parent not in domains:
            hint = nearest(domain.parent, domains)
            raise domain.field.error(f"unknown parent '{domain.parent}' of the domain '{domain.name}', {hint}")
    _refuse_cycles(domains)
    for domain in domains.values():
        if domain.parent:
            _check_levels(domain, domains[domain.parent], levels)
    return domains


def _read_domain(field: Field, levels: tuple[str, ...]) -> Declared:
    fields = field.mapping(DOMAIN_KEYS)
    name = fields.need("name", Field.name)
    level = fields.need("level", lambda level: level.choice(levels))
    return Declared(field, name, level, fields.get("parent", Field.name, ""))


def _refuse_cycles(domains: Mapping[str, Declared]) -> None:
    """Follows parents from every domain to the top, and no stretch twice."""
    settled: dict[str, None] = {}
    for domain in domains.values():
        trail: dict[str, None] = {}
        name = domain.name
        while name and name not in settled:
            if name in trail:
                names = list(trail)
                cycle = " in ".join([*names[names.index(name) :], name])
                raise domain.field.error(f"a domain cannot lie in itself: {cycle}")
            trail[name] = None
            name = domains[name].parent
        settled.update(trail)


def _check_levels(domain: Declared, parent: Declared, levels: tuple[str, ...]) -> None:
    if levels.index(parent.level) >= levels.index(domain.level):
        raise domain.field.error(
            f"the {domain.level} '{domain.name}' cannot lie in the {parent.level} '{parent.name}': "
            f"from the outside the levels are {', '.join(levels)}"
        )


@dataclass(frozen=True, slots=True)
class Series:
    """A new domain for every so many nodes of a group. `{}` in the pattern stands for its number."""

    nodes: int
    pattern: str
    first: int

    def name(self, index: int) -> str:
        """The domain of the node of that index in the group."""
        return self.pattern.replace("{}", str(self.first + index // self.nodes))


class Domains:
    """The domains that nodes lie in. Each lies in one domain of every level outside its own, or in none."""

    def __init__(self, levels: tuple[str, ...], declared: Mapping[str, Declared]) -> None:
        self.levels = levels
        self._declared = declared
        self._names = {
            level: [domain.name for domain in declared.values() if domain.level == level] for level in levels
        }
        self._outside: dict[tuple[str, str], tuple[tuple[str, ...], int]] = {}
        self._numbered: dict[tuple[str, str], int] = {}

    def series(self, field: Field, level: str, count: int) -> Series:
        """Reads `{nodes: 16, name: "r{}"}` for a group of `count` nodes; numbers go on from group to group."""
        fields = field.mapping(SERIES_KEYS)
        nodes = fields.need("nodes", lambda nodes: nodes.integer(1, NODES_MAX))
        pattern = fields.get("name", read_pattern, level + "{}")
        series = Series(nodes, pattern, self._numbered.get((level, pattern), 0))
        for start in range(0, count, nodes):
            if (level, series.name(start)) in self._outside:
                raise field.error(f"the {level} '{series.name(start)}' is not new: an earlier group names it")
        self._numbered[level, pattern] = series.first + -(-count // nodes)
        return series

    def path(self, names: Mapping[str, str], group: Fields) -> tuple[str, ...]:
        """The domains a node lies in, outermost first: those its group names, and the parents these have."""
        path = [names.get(level, "") for level in self.levels]
        for depth in reversed(range(len(path))):
            if path[depth]:
                self._add_parent(path, depth, group)
        for depth, name in enumerate(path):
            if name:
                self._settle(tuple(path), depth, group)
        return tuple(path)

    def _add_parent(self, path: list[str], depth: int, group: Fields) -> None:
        level, name = self.levels[depth], path[depth]
        if not self._names[level]:
            return
        domain = self._declared.get(name)
        if domain is None or domain.level != level:
            raise _place(group, level).error(f"unknown {level} '{name}', {nearest(name, self._names[level])}")
        if not domain.parent:
            return
        parent = self._declared[domain.parent]
        at = self.levels.index(parent.level)
        if path[at] not in ("", parent.name):
            raise _place(group, level).error(
                f"the {level} '{name}' lies in the {parent.level} '{parent.name}' (line {domain.field.line}), "
                f"not in '{path[at]}'"
            )
        path[at] = parent.name

    def _settle(self, path: tuple[str, ...], depth: int, group: Fields) -> None:
        """Remembers what a domain lies in, and refuses a second answer."""
        level, name, outside = self.levels[depth], path[depth], path[:depth]
        known, line = self._outside.setdefault((level, name), (outside, group.place.line))
        if known != outside:
            raise _place(group, level).error(
                f"the {level} '{name}' cannot lie in {self._address(outside)}: "
                f"the group on line {line} has it in {self._address(known)}"
            )

    def _address(self, outside: tuple[str, ...]) -> str:
        parts = [f"{level} '{name}'" for level, name in zip(self.levels, outside, strict=False) if name]
        return ", ".join(parts) or f"no {self.levels[0]}"


def _place(group: Fields, level: str) -> Field:
    return group.given((level,)) or group.place


def read_pattern(field: Field) -> str:
    """A name with `{}` where a number goes."""
    text = field.text()
    if "{}" not in text or not is_name(text.replace("{}", "0")):
        raise field.expected("a name with {} where its number goes, such as r{}")
    return text
