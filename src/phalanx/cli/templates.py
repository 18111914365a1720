"""The gallery of job templates: files that work as they are, to be changed by hand or by `--set`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from phalanx.cli.client import NotFound


@dataclass(frozen=True, slots=True)
class Template:
    """A job file with a name and a line that says what it is for."""

    name: str
    summary: str
    text: str


def templates() -> tuple[Template, ...]:
    """All templates, by name."""
    folder = files("phalanx.cli") / "template_files"
    entries = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name
    )
    return tuple(_template(entry.name.removesuffix(".yaml"), entry.read_text("utf-8")) for entry in entries)


def template(name: str) -> Template:
    """The template of a name."""
    for each in templates():
        if each.name == name:
            return each
    known = ", ".join(each.name for each in templates())
    raise NotFound(f"template '{name}': there is none of that name; there is {known}")


def _template(name: str, text: str) -> Template:
    return Template(name, text.partition("\n")[0].removeprefix("# "), text)
