"""Job templates by name: files that work as they are, to be changed by hand or by `--set`."""

from __future__ import annotations

from phalanx.cli.client import NotFound
from phalanx.templates.gallery import Template, templates


def template(name: str) -> Template:
    """The template of a name."""
    for each in templates():
        if each.name == name:
            return each
    known = ", ".join(each.name for each in templates())
    raise NotFound(f"template '{name}': there is none of that name; there is {known}")
