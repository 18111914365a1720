"""Names of GPU types in files: those of the hardware catalogue, and a site's own."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator
from phalanx.document import Field


def read_gpu_type(field: Field, own: Collection[str]) -> str:
    """The canonical name of the type: one of the site's own, or one of the catalogue by any of its names."""
    name = field.title()
    if name in own:
        return name
    try:
        return accelerator(name).name
    except UnknownAccelerator as unknown:
        close = dict.fromkeys((*get_close_matches(name, own), *unknown.close))
        hint = f"did you mean {' or '.join(close)}?" if close else "`phalanx hardware` lists those it knows"
        raise field.error(f"unknown GPU type '{name}', {hint}") from None
