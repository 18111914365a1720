"""The gallery of job templates, as the command line and the page offer them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Template:
    """A job file with a name and a line that says what it is for."""

    name: str
    summary: str
    text: str


def templates() -> tuple[Template, ...]:
    """All templates, by name."""
    entries = [entry for entry in files("phalanx.templates").iterdir() if entry.name.endswith(".yaml")]
    return tuple(
        _template(entry.name.removesuffix(".yaml"), entry.read_text("utf-8"))
        for entry in sorted(entries, key=lambda entry: entry.name)
    )


def _template(name: str, text: str) -> Template:
    return Template(name, text.partition("\n")[0].removeprefix("# "), text)
