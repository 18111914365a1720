"""Text that comes from outside (job ids, queues, nodes, policies) and must stay text, wherever a page puts it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable

LENGTH_MAX = 48


def plain(text: str, length_max: int = LENGTH_MAX) -> str:
    """Text on one line, shortened, with what does not print spelled out."""
    if len(text) > length_max:
        text = text[: length_max - 1] + "…"
    return text if text.isprintable() else "".join(map(_spelled, text))


def _spelled(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def page_text(text: str, length_max: int = LENGTH_MAX) -> str:
    """Text for an element or a quoted attribute of the page."""
    return html.escape(plain(text, length_max))


def chart_text(text: str) -> str:
    """Text for a label of a chart: plotly reads tags and links in labels, and entities of these three."""
    return html.escape(plain(text), quote=False)


def labels(texts: Iterable[str]) -> list[str]:
    """A label of its own for each text, also where two are equal once they are shortened."""
    seen: dict[str, int] = {}
    unique = []
    for text in texts:
        label = plain(text)
        seen[label] = count = seen.get(label, 0) + 1
        unique.append(label if count == 1 else f"{label} ({count})")
    return unique


def script_json(data: object) -> str:
    """JSON that can stand inside a script element: nothing in it ends the element or begins a comment."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
