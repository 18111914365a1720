"""What a study is asked for, as it lies in its folder."""

from __future__ import annotations

import msgspec

HISTORY, UPLOAD, SYNTHETIC = "history", "upload", "synthetic:"
COMPARE, CAPACITY = "compare", "capacity"


class Asked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A study of a user. Texts are as on the command line.

    `source` is `history`, `upload` or `synthetic:…`, `trace` what it is called. An empty `cluster` is that of the
    server, else it is the text of a cluster file. `faults` is a profile of failures. `targets`, `nodes` and
    `price_usd_h` are of a study of `capacity`.
    """

    kind: str
    user: str
    created_ms: int
    source: str
    trace: str
    cluster: str = ""
    policies: list[str] = []
    placement: str = "topology"
    costs: str = "default"
    seeds: int = 1
    load: str = ""
    window: str = ""
    until: str = ""
    estimates: str = ""
    skip_bad_rows: bool = False
    faults: str = ""
    targets: list[str] = []
    nodes: str = ""
    price_usd_h: float = 0.0
