"""A job that options alone describe. It goes to the server as JSON, so that nothing has to be loaded to write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from phalanx.cli.output import as_yaml


class NewJob:
    """The keys of a job file, as options give them. It has no source that options could have changed."""

    source = ""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._keys: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The job file, for people."""
        return as_yaml(self._keys)

    @property
    def sent(self) -> str:
        """The job file as the server gets it."""
        return json.dumps(self._keys, ensure_ascii=False)

    def value(self, key: str) -> str | None:
        """The text that a key has; None where it has none."""
        found = self._keys.get(key)
        return found if isinstance(found, str) else None

    def has(self, key: str) -> bool:
        """Whether a key is there."""
        return key in self._keys

    def put(self, path: list[str], value: object) -> None:
        """Gives a key a value."""
        (key,) = path
        self._keys[key] = value

    def put_pairs(self, key: str, pairs: Mapping[str, str | int]) -> None:
        """Adds names with their values to a mapping."""
        if pairs:
            self._keys.setdefault(key, {}).update(pairs)

    def add_pairs(self, key: str, pairs: Mapping[str, str]) -> None:
        """Adds names with their values to a mapping that has none of these names."""
        had = self._keys.get(key, {})
        self.put_pairs(key, {name: value for name, value in pairs.items() if name not in had})

    def put_task(self, keys: Mapping[str, object]) -> None:
        """Says what each task asks for, and with `replicas` how many there are."""
        if "replicas" in keys:
            self._keys["gang"] = [{"role": "worker", **keys}]
        else:
            self._keys.update(keys)
