"""Quantities as Kubernetes writes them: 16, 500m, 64Gi, 1.5T, 1e3."""

from __future__ import annotations

import re
from decimal import Decimal

from phalanx.document import Field
from phalanx.document.units import ceiling

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,18}(?:\.[0-9]{0,9})?(?:[eE][0-9]{1,2})?)(?P<suffix>[a-zA-Z]{0,2})")
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
BYTES_PER_MB = 1 << 20


def quantity(field: Field) -> Decimal:
    """An amount in the base unit, exactly."""
    written = _QUANTITY.fullmatch(field.text().strip())
    if written is None or written["suffix"] not in _FACTORS:
        raise field.expected("a quantity such as 16, 500m or 64Gi")
    return Decimal(written["number"]) * _FACTORS[written["suffix"]]


def gpus_permille(field: Field) -> int:
    """Thousandths of GPUs."""
    return ceiling(1000 * quantity(field))


def cpus_milli(field: Field) -> int:
    """Thousandths of CPUs, rounded up."""
    return ceiling(1000 * quantity(field))


def memory_mb(field: Field) -> int:
    """Mebibytes, rounded up."""
    return ceiling(quantity(field) / BYTES_PER_MB)
