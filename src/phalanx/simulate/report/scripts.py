"""The scripts of the page, and the rule that no other runs."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import import_module
from importlib.resources import files

from phalanx.errors import PhalanxError


class ReportError(PhalanxError):
    """A report that cannot be made."""


def plotly_source() -> str:
    """Plotly's own JavaScript, out of the installed package."""
    try:
        source: str = import_module("plotly.offline").get_plotlyjs()
    except ModuleNotFoundError as error:
        raise ReportError("a report needs plotly: pip install plotly") from error
    # A browser reads every line end as this one, and the hash is of what it reads.
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    if "</script" in source.lower() or "<!--" in source:
        raise ReportError("this version of plotly cannot stand inside a page: install another one")
    return source


def own_file(name: str) -> str:
    """A file that lies beside this one."""
    return files("phalanx.simulate.report").joinpath(name).read_text(encoding="utf-8")


def security(scripts: tuple[str, ...]) -> str:
    """Only these scripts run, and nothing is loaded: not even by what a job's name might bring into the page."""
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
