"""Amounts as Kubernetes and OpenPAI write them: 4096Mi, 54Gi, or a plain number of mebibytes."""

from __future__ import annotations

import re
from decimal import Decimal

from phalanx.document import Field

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?)?B?")
_MB = {"": Decimal(1)} | {
    unit + ending: Decimal(1024) ** power for power, unit in enumerate("KMGT", start=-1) for ending in ("", "i")
}
MEMORY_MB_MAX = 1024 * 1024 * 1024


def memory_mb(field: Field) -> int:
    """Mebibytes, rounded up."""
    written = _QUANTITY.fullmatch(field.text().strip())
    if written is None:
        raise field.expected("an amount of memory such as 4096Mi or 54Gi")
    amount = Decimal(written.group(1)) * _MB[(written.group(2) or "").replace("k", "K")]
    if not 0 <= amount <= MEMORY_MB_MAX:
        raise field.expected(f"at most {MEMORY_MB_MAX} mebibytes of memory")
    return int(amount.to_integral_value(rounding="ROUND_CEILING"))
