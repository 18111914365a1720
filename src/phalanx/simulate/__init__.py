"""Virtual time: a backend whose clock is a number. The package itself can be called: `phalanx.simulate(…)`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phalanx.simulate.figures.result import Result


class _CallablePackage(ModuleType):
    """`phalanx.simulate` is the function that people call and, as soon as any of it is imported, this package.

    An attribute can hold only one of them, so the package does what the function does.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Result:
        from phalanx.simulate.entry import simulate

        return simulate(*arguments, **options)


sys.modules[__name__].__class__ = _CallablePackage
