"""A job file that options change. What they do not change stays as it is written: `on`, `1.10` and `yes` are text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
import yaml

from phalanx.errors import PhalanxError

WIDTH = 1_000_000
"""Lines are not folded."""


class NoTree(PhalanxError):  # noqa: N818
    """A text that has no keys, so that it is no job file either."""


class JobDraft:
    """The text of a job file as a tree. `source` is what people call it. The tree may hold what no reader takes."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.changes: list[str] = []
        self.original = text
        self._root = _root_of(text, source)
        self._is_changed = False

    @property
    def text(self) -> str:
        """The file as it is now; as it was given, if nothing has changed."""
        if not self._is_changed:
            return self.original
        text: str = yaml.serialize(self._root, Dumper=yaml.SafeDumper, width=WIDTH, allow_unicode=True)
        return text

    @property
    def sent(self) -> str:
        """The file as the server gets it."""
        return self.text

    def value(self, key: str) -> str | None:
        """A plain value of the file, as it is written; None where there is none."""
        found = _get(self._root, key)
        return found.value if isinstance(found, yaml.ScalarNode) else None

    def has(self, key: str) -> bool:
        """Whether the file has a key."""
        return _get(self._root, key) is not None

    def put(self, path: list[str], value: object) -> None:
        """Gives a key another value, which JSON can write."""
        self._put(path, _node(json.dumps(value, ensure_ascii=False)), f"--set {'.'.join(path)}")

    def put_text(self, key: str, text: str) -> None:
        """Gives a key, as `gang.0.replicas` names it, a value as a job file has it."""
        try:
            node = _node(text)
        except yaml.YAMLError:
            raise click.UsageError(f"--set {key}={text}: expected a value as a job file has it") from None
        self._put(key.split("."), node, f"--set {key}")

    def put_pairs(self, key: str, pairs: Mapping[str, str | int]) -> None:
        """Adds names with their values to a mapping, before those that it has."""
        for name, value in pairs.items():
            self._add_mapping(key)
            self.put([key, name], value)

    def add_pairs(self, key: str, pairs: Mapping[str, str]) -> None:
        """Adds names with their values to a mapping that has none of these names; this is told nowhere."""
        told = list(self.changes)
        had = _get(self._root, key)
        self.put_pairs(key, {name: value for name, value in pairs.items() if _get(had, name) is None})
        self.changes = told

    def put_task(self, keys: Mapping[str, object]) -> None:
        """Changes what each task asks for, and with `replicas` how many there are."""
        if not keys:
            return
        gang = _get(self._root, "gang")
        if gang is None and "replicas" not in keys:
            for key, value in keys.items():
                self.put([key], value)
            return
        if gang is None:
            gang = self._made_gang()
        if len(gang.value) != 1:
            key, value = next(iter(keys.items()))
            raise click.UsageError(
                f"{self.source} has {len(gang.value)} roles: say which with --set, as in --set gang.0.{key}={value}"
            )
        for key, value in keys.items():
            self.put(["gang", "0", key], value)

    def _made_gang(self) -> Any:
        """Turns what the file asks for one task into a gang of one role."""
        from phalanx.workload.formats.gang import TASK_KEYS

        own = [(key, value) for key, value in self._root.value if key.value in TASK_KEYS]
        self._root.value = [pair for pair in self._root.value if pair not in own]
        gang = _node('[{"role": "worker"}]')
        gang.value[0].value += own
        self._root.value.append((_node("gang"), gang))
        self._is_changed = True
        return gang

    def _add_mapping(self, key: str) -> None:
        if _get(self._root, key) is None:
            self._root.value.append((_node(json.dumps(key)), _node("{}")))

    def _put(self, path: list[str], node: Any, option: str) -> None:
        place = self._root
        for depth, key in enumerate(path[:-1]):
            inner = _get(place, key)
            if inner is None:
                raise click.UsageError(f"{option}: {self._lacks(place, path[:depth], key)}")
            place = inner
        before, last = _get(place, path[-1]), path[-1]
        if isinstance(place, yaml.MappingNode):
            others = [(key, value) for key, value in place.value if key.value != last]
            at = next((i for i, (key, _) in enumerate(place.value) if key.value == last), len(others))
            place.value = [*others[:at], (_node(json.dumps(last)), node), *others[at:]]
        elif isinstance(place, yaml.SequenceNode) and before is not None:
            place.value[int(last)] = node
        else:
            raise click.UsageError(f"{option}: {self._lacks(place, path[:-1], last)}")
        self._is_changed = True
        was = f"{_shown(before)} becomes " if before is not None else ""
        self.changes.append(f"{'.'.join(path)}: {was}{_shown(node)}")

    def _lacks(self, place: Any, path: list[str], key: str) -> str:
        where = ".".join(path)
        if isinstance(place, yaml.SequenceNode):
            count = len(place.value)
            return f"{self.source} has no '{key}' in {where}, which has {count} {'item' if count == 1 else 'items'}"
        if isinstance(place, yaml.ScalarNode):
            return f"'{where}' of {self.source} has no keys"
        return f"{self.source} has no '{'.'.join([*path, key])}'"


def _root_of(text: str, source: str) -> Any:
    try:
        root = yaml.compose(text, yaml.SafeLoader) or _node("{}")
    except yaml.YAMLError as error:
        raise NoTree(f"{source}: {error}") from None
    if not isinstance(root, yaml.MappingNode):
        raise NoTree(f"{source}: expected a job file, with keys such as `command` and `gpus`")
    return root


def _node(text: str) -> Any:
    return yaml.compose(text, yaml.SafeLoader) or yaml.ScalarNode("tag:yaml.org,2002:null", "")


def _get(place: Any, key: str) -> Any:
    if isinstance(place, yaml.MappingNode):
        return next((value for each, value in place.value if each.value == key), None)
    if isinstance(place, yaml.SequenceNode) and key.isdecimal() and int(key) < len(place.value):
        return place.value[int(key)]
    return None


def _shown(node: Any) -> str:
    """A value in one line, as a file could have it."""
    text: str = yaml.serialize(node, Dumper=yaml.SafeDumper, width=WIDTH, allow_unicode=True)
    line = text.removesuffix("...\n").strip()
    return line if "\n" not in line else json.dumps(yaml.safe_load(text), default=str)
