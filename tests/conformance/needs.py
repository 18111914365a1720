"""What a case of the suite needs of a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from programs import Program

from phalanx.backends.capability import Capability

Case = TypeVar("Case", bound=Callable[..., None])


def about(*needs: Program | Capability) -> Callable[[Case], Case]:
    """Says what a case needs; a backend that declares to lack any of it is not asked."""

    def mark(case: Case) -> Case:
        case.needs = needs  # type: ignore[attr-defined]
        return case

    return mark
