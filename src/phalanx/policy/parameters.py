"""Parameters of a policy, as they are given on a command line."""

from __future__ import annotations

from collections.abc import Mapping


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

    def integer(self, key: str, default: int) -> int:
        """A whole number."""
        text = self._text(key)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"policy {self.policy}: {key}={text}: expected a whole number") from None

    def _text(self, key: str) -> str | None:
        self._known.append(key)
        return self.given.get(key)

    def check_all_read(self) -> None:
        """Raises if a key was given that the policy does not have."""
        for key in self.given:
            if key not in self._known:
                known = ", ".join(self._known) or "none"
                raise ValueError(f"policy {self.policy} has no parameter {key!r} (it has: {known})")
