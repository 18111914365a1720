"""Quantities as Kubernetes writes them, in whole thousandths: 500m, 64Gi, 1.5, 1e3."""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]{0,2})")
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
BYTES_PER_MB = 1 << 20

MOST = Decimal(1 << 50)
"""A number beyond this counts as this: more than any node has, and little enough to be added up and written down."""

LARGEST = Decimal(10) ** 30
"""Likewise of an amount as it is written, of which there may be thousandths and bytes."""


@lru_cache(maxsize=10_000)
def quantity(written: str | int | float) -> Decimal:
    """An amount in the base unit, exactly. What is no quantity raises ValueError."""
    found = _QUANTITY.fullmatch(str(written).strip())
    if found is None or found[2] not in _FACTORS:
        raise ValueError(f"expected a quantity such as 16, 500m or 64Gi, got {written!r}")
    try:
        return _within(Decimal(found[1]) * _FACTORS[found[2]], LARGEST)
    except ArithmeticError:
        raise ValueError(f"expected a quantity such as 16, 500m or 64Gi, got {written!r}") from None


def up(amount: Decimal) -> int:
    """A whole number that is at least so much: for what is asked for."""
    return int(_within(amount, MOST).to_integral_value(ROUND_CEILING))


def down(amount: Decimal) -> int:
    """A whole number that is at most so much: for what there is."""
    return int(_within(amount, MOST).to_integral_value(ROUND_FLOOR))


def _within(amount: Decimal, most: Decimal) -> Decimal:
    return max(min(amount, most), -most)
