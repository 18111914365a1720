"""What can be wrong with checkpoints at rest, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from phalanx.errors import PhalanxError


class StoreError(PhalanxError):
    """A checkpoint store that could not do what it was asked."""


class StoreUnreachable(StoreError):  # noqa: N818
    """A store that failed or kept silent until the retries were used up."""

    exit_code: ClassVar[int] = 5


class AccessRefused(StoreError):  # noqa: N818
    """A store that does not know the caller, or does not let it do what it asked for."""

    exit_code: ClassVar[int] = 4


class NoSuchStep(StoreError):  # noqa: N818
    """A step, or any step at all, that is not there."""

    exit_code: ClassVar[int] = 3


class FencedOut(StoreError):  # noqa: N818
    """Another trainer has taken the directory over: this one writes no more."""

    exit_code: ClassVar[int] = 4


class DirectoryInUse(StoreError):  # noqa: N818
    """Another job is alive and writes to the directory."""

    exit_code: ClassVar[int] = 4


class RankMissing(StoreError):  # noqa: N818
    """Ranks that have not written their part in time."""

    def __init__(self, directory: str, missing: Sequence[int], world: int, timeout_s: float) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"{directory}: rank {spans(missing)} of {world} did not write its part within {timeout_s:g} s; "
            "the step stays uncommitted"
        )

    def __reduce__(self) -> tuple[type[StoreError], tuple[str]]:
        return StoreError, (str(self),)


class Incomplete(StoreError):  # noqa: N818
    """Pieces that do not make up whole tensors."""


class Corrupt(StoreError):  # noqa: N818
    """A step whose bytes are not those that were written."""

    def __init__(self, directory: str, reasons: Sequence[str]) -> None:
        self.directory = directory
        self.reasons = tuple(reasons)
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        super().__init__(f"{directory}: {reasons[0]}{more}")

    def __reduce__(self) -> tuple[type[Corrupt], tuple[str, tuple[str, ...]]]:
        return Corrupt, (self.directory, self.reasons)


def spans(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 0-3,7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
