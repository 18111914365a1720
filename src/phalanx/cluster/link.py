"""Links: the wires that join the children of a domain."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the children of a domain.

    `gb_s` is what one transfer gets in one direction (1 GB/s = 1e9 bytes a second). `lanes` is how many transfers a
    child can send at that speed at once, and how many it can receive; more than that share. A node with one network
    card has one lane, a node with a card for each of its eight GPUs has eight.
    """

    gb_s: float
    latency_us: float = 0.0
    lanes: int = 1

    def __post_init__(self) -> None:
        # Written so that NaN, which fails every comparison, is refused too.
        if not self.gb_s > 0:
            raise ValueError(f"link: gb_s must be greater than 0, got {self.gb_s!r}")
        if not 0 <= self.latency_us < float("inf"):
            raise ValueError(f"link: latency_us must be a finite number of at least 0, got {self.latency_us!r}")
        if self.lanes < 1:
            raise ValueError(f"link: lanes must be at least 1, got {self.lanes!r}")

    def transfer_ms(self, size_bytes: float) -> float:
        """The alpha-beta time of one message: latency plus size over bandwidth."""
        return self.latency_us / 1e3 + size_bytes / (self.gb_s * 1e6)
