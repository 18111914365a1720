"""Names of GPU types as drivers and schedulers spell them, and what the catalogue calls those."""

from __future__ import annotations

import re
from functools import lru_cache

from phalanx.cluster.catalogue import UnknownAccelerator, accelerator

_FORM = re.compile(r"nvidia|amd|tesla|instinct|geforce|pcie|sxm\d*|hbm\d+e?|nvl\d*")
_MEMORY = re.compile(r"\d+gb")


@lru_cache(maxsize=4096)
def catalogue_name(written: str) -> str:
    """The catalogue's name of `nvidia_h100_80gb_hbm3` or `tesla_v100-pcie-32gb`; of other types what was written.

    Vendors and the form of a board make no difference. Memory does where the catalogue tells devices apart by it.
    """
    words = [word for word in re.split(r"[^a-z0-9.]+", written.casefold()) if word and not _FORM.fullmatch(word)]
    model = [word for word in words if not _MEMORY.fullmatch(word)]
    for candidate in (written, "-".join(words), "-".join(model)):
        try:
            return accelerator(candidate).name
        except UnknownAccelerator:
            continue
    return written
