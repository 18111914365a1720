"""Pages of charts in one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phalanx.simulate.report.page import Section, html_page
from phalanx.simulate.report.scripts import ReportError
from phalanx.simulate.report.text import page_text

SERIES = 8
"""Colours that the page has for the series of its charts."""


def write_page(path: str, title: str, overview: str, sections: Sequence[Section]) -> None:
    """Writes one HTML file that opens anywhere, offline."""
    try:
        Path(path).write_bytes(html_page(title, page_text(overview, 1000), sections, SERIES).encode())
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
