"""Parameters of a policy, as they are given on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise


class Parameters:
    """key=value pairs, read by type. A key that nobody reads is an error that names the ones there are."""

    def __init__(self, policy: str, given: Mapping[str, str]) -> None:
        self.policy = policy
        self.given = dict(given)
        self._known: list[str] = []

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        text = self._text(key)
        if text is None:
            return default
        if text not in ("true", "false"):
            raise ValueError(f"policy {self.policy}: {key}={text}: expected true or false")
        return text == "true"

    def integer(self, key: str, default: int, least: int | None = None) -> int:
        """A whole number, at least `least`."""
        text = self._text(key)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"policy {self.policy}: {key}={text}: expected a whole number") from None
        if least is not None and value < least:
            raise ValueError(f"policy {self.policy}: {key}={text}: expected at least {least}")
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One of some words, the first if none is given."""
        text = self._text(key)
        if text is None:
            return choices[0]
        if text not in choices:
            raise ValueError(f"policy {self.policy}: {key}={text}: expected one of {', '.join(choices)}")
        return text

    def numbers(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Whole numbers in rising order, as 3250/7200."""
        text = self._text(key)
        if text is None:
            return default
        try:
            values = tuple(int(part) for part in text.split("/"))
        except ValueError:
            raise ValueError(f"policy {self.policy}: {key}={text[:40]}: expected whole numbers as 1/2/3") from None
        if any(later < earlier for earlier, later in pairwise(values)) or values[0] < 0:
            raise ValueError(f"policy {self.policy}: {key}={text[:40]}: expected rising numbers from 0 on")
        return values

    def number_or_off(self, key: str) -> float | None:
        """A number that is not negative, or `off`, which is also the default."""
        text = self._text(key)
        if text is None or text == "off":
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise ValueError(f"policy {self.policy}: {key}={text}: expected off or a number that is not negative")
        return value

    def text(self, key: str, default: str) -> str:
        """Any word."""
        text = self._text(key)
        return default if text is None else text

    def _text(self, key: str) -> str | None:
        self._known.append(key)
        return self.given.get(key)

    def check_all_read(self) -> None:
        """Raises if a key was given that the policy does not have."""
        for key in self.given:
            if key not in self._known:
                known = ", ".join(self._known) or "none"
                raise ValueError(f"policy {self.policy} has no parameter {key!r} (it has: {known})")
