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


def spares(*backends: str) -> Callable[[Case], Case]:
    """Names backends, slow to start anything, on which a case is run only when that is asked for: what it is about
    happens in the engine, or in code that they share with a backend on which it is run always.
    """

    def mark(case: Case) -> Case:
        case.spares = backends  # type: ignore[attr-defined]
        return case

    return mark
