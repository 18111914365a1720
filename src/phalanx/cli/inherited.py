"""What a job takes over from the shell that it is submitted from: which Python it finds, and no secrets."""

from __future__ import annotations

from collections.abc import Mapping

INHERITED = (
    *("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "CUDA_HOME"),
    *("LANG", "LC_ALL", "TZ"),
)
"""By name alone: whatever else a shell has may be a token or a key."""

VALUE_MAX = 32_000


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a shell that a job takes over. An empty one is as good as none."""
    return {name: value for name in INHERITED if (value := environ.get(name, "")) and _is_plain(value)}


def _is_plain(value: str) -> bool:
    return len(value) <= VALUE_MAX and value.isprintable()
