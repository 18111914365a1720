"""The ledger of a run: GPU time that was held, computed in, kept and lost, by job and in all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from phalanx.placement.placement import Placement
from phalanx.simulate.figures.stays import Stays

FULL_PERMILLE = 1000


class Ran(NamedTuple):
    """When a job ran, and with how much of the GPUs it asks for, in thousandths."""

    since_ms: int
    until_ms: int
    permille: int


@dataclass(slots=True)
class Account:
    """GPU time of one job, in thousandths of a GPU times milliseconds; `last` is where it was last.

    `down` is what was held without computing, by what for: start, restart, reload, detection.
    """

    held: int = 0
    held_ms: int = 0
    computed: int = 0
    lost: int = 0
    last: Placement | None = None
    useful: float = 0.0
    down: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """What every attempt cost.

    `useful` is the part of what was computed that a job would have needed for the work that was kept, had it had the
    same GPUs to itself and near each other. `runs` is of those jobs only that are to be followed.
    """

    held_now: int = 0
    held: int = 0
    computed: int = 0
    lost: int = 0
    useful: float = 0.0
    accounts: dict[str, Account] = field(default_factory=dict)
    stays: Stays = field(default_factory=Stays)
    runs: dict[str, list[Ran]] = field(default_factory=dict)

    def follow(self, job: str) -> None:
        """Has it be remembered when a job ran, and on how much of what it asks for."""
        self.runs[job] = []

    def ran(self, job: str, run: Ran) -> None:
        """A job that is followed ran once."""
        runs = self.runs[job]
        if runs and runs[-1].until_ms == run.since_ms and runs[-1].permille == run.permille:
            run = Ran(runs.pop().since_ms, run.until_ms, run.permille)
        runs.append(run)

    def hold(self, placement: Placement) -> None:
        """An attempt holds a placement from now on."""
        self.held_now += permille_of(placement)

    def book(self, job: str, attempt: int, placement: Placement, since_ms: int, until_ms: int) -> None:
        """An attempt has given back what it held since a moment."""
        account, held_ms = self.account(job), until_ms - since_ms
        permille = permille_of(placement)
        self.held_now -= permille
        account.held += permille * held_ms
        account.held_ms += held_ms
        self.held += permille * held_ms
        account.last = placement
        self.stays.add(job, attempt, placement, since_ms, until_ms)

    def account(self, job: str) -> Account:
        """The account of a job; a new one, if it has none."""
        account = self.accounts.get(job)
        if account is None:
            account = self.accounts[job] = Account()
        return account

    def compute(self, job: str, gpu_ms: int, useful_gpu_ms: float) -> None:
        """A job has computed for so long, and so much of that was of use."""
        account = self.account(job)
        account.computed += gpu_ms
        account.useful += useful_gpu_ms
        self.computed += gpu_ms
        self.useful += useful_gpu_ms

    def stand(self, job: str, why: str, gpu_ms: int) -> None:
        """A job has held devices for so long without computing."""
        if gpu_ms > 0:
            down = self.account(job).down
            down[why] = down.get(why, 0) + gpu_ms

    def lose(self, job: str, gpu_ms: int, useful_gpu_ms: float) -> None:
        """Work of a job has to be done again: what it took, and what of that had been of use."""
        account = self.account(job)
        account.lost += gpu_ms
        account.useful -= useful_gpu_ms
        self.lost += gpu_ms
        self.useful -= useful_gpu_ms


def permille_of(placement: Placement) -> int:
    """Thousandths of GPUs a placement takes. What is revocable takes nothing from any job."""
    permille = 0
    for slot in placement.slots:
        portion = slot.portion
        if portion is None:
            permille += FULL_PERMILLE * len(slot.devices)
        elif not portion.revocable:
            permille += portion.compute_permille
    return permille
