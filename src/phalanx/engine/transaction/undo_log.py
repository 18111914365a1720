"""Steps: what a plan would do to capacity, quotas and cells, done on the State and undone one by one.

Nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from phalanx.cluster.capacity import Booking
from phalanx.engine.state.records import AttemptRecord
from phalanx.engine.state.state import State
from phalanx.policy.view import Usage
from phalanx.protocol.cells_steps import CellStep

Step = tuple[Callable[[Any], None], Any]


class UndoLog:
    """Changes to the State that end with the `with` block, or earlier by `undo_to`.

    `touched` are the queues that got or lost something by them, one after the other, also by what is undone.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._undo: list[Step] = []
        self._grown = 0
        self.cell_steps: list[CellStep] = []
        self.touched: list[str] = []

    def __enter__(self) -> Self:
        self._grown = self.state.capacity.grown
        if self.state.cells is not None:
            self.state.cells.open(self.state.capacity)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo_to(0)
        if self.state.cells is not None:
            self.state.cells.close()
        self.state.capacity.grown = self._grown

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._undo)

    @property
    def last_step(self) -> Step | None:
        """The last step that is not taken back: while it is the same one, so are all before it."""
        return self._undo[-1] if self._undo else None

    def undo_to(self, mark: int) -> None:
        """Takes back every step since a mark, the last first."""
        while len(self._undo) > mark:
            undo, what = self._undo.pop()
            undo(what)

    def put(self, owner: object, name: str, value: object) -> None:
        """Sets a field of an object that keeps a record of the transaction, until that is undone."""
        self._undo.append((lambda before: setattr(owner, name, before), getattr(owner, name)))
        setattr(owner, name, value)

    def use(self, queue: str, what: Usage, sign: int) -> None:
        """As if a queue used so much more (1) or less (-1)."""
        self._use(queue, what, sign)
        self._undo.append((lambda used: self._use(queue, used, -sign), what))

    def _use(self, queue: str, what: Usage, sign: int) -> None:
        self.touched.append(queue)
        self.state.suppose(queue, what, sign)

    def withhold(self, amounts: list[tuple[str, int]], resource: int, sign: int) -> None:
        """As if so much of what queues may have were reserved for a job (1), or no longer (-1)."""
        self.state.quotas.withhold(amounts, resource, sign)
        self._undo.append((lambda kept: self.state.quotas.withhold(kept, resource, -sign), amounts))

    def release(self, bookings: Iterable[Booking]) -> None:
        """As if the attempts that hold these were gone."""
        for booking in bookings:
            self.state.capacity.release(booking)
            self._undo.append((self.state.capacity.hold, booking))

    def vacate(self, bookings: Iterable[Booking]) -> None:
        """As if the attempts that are leaving these were gone. What of them is claimed stays claimed."""
        for booking in bookings:
            self.state.capacity.vacate(booking)
            self._undo.append((self.state.capacity.occupy, booking))

    def vacate_tasks(self, booking: Booking, tasks: int) -> None:
        """Likewise, of several bookings of one node that are joined to one."""
        self.state.capacity.vacate(booking, tasks)
        self._undo.append((lambda joined: self.state.capacity.occupy(joined, tasks), booking))

    def cede(self, bookings: Iterable[Booking]) -> None:
        """As if the attempt that holds these were told to leave."""
        for booking in bookings:
            self.state.capacity.cede(booking)
            self._undo.append((self.state.capacity.keep, booking))

    def keep(self, bookings: Iterable[Booking]) -> None:
        """As if the attempt that was told to leave these might stay."""
        for booking in bookings:
            self.state.capacity.keep(booking)
            self._undo.append((self.state.capacity.cede, booking))

    def claim(self, bookings: Iterable[Booking]) -> None:
        """As if a job had a claim on what attempts still hold."""
        for booking in bookings:
            self.state.capacity.claim(booking)
            self._undo.append((self.state.capacity.unclaim, booking))

    def hold(self, bookings: Iterable[Booking]) -> bool:
        """As if an attempt held these; not if another is in the way of any of them."""
        mark = self.mark()
        for booking in bookings:
            if self.state.capacity.held_by_others(booking):
                self.undo_to(mark)
                return False
            self.state.capacity.hold(booking)
            self._undo.append((self.state.capacity.release, booking))
        return True

    def note_held(self, bookings: Iterable[Booking]) -> None:
        """Takes note of what is held already: code that places a gang books as it goes."""
        release = self.state.capacity.release
        self._undo += [(release, booking) for booking in bookings]

    def unclaim(self, bookings: Iterable[Booking]) -> None:
        """As if a claim were taken back."""
        for booking in bookings:
            self.state.capacity.unclaim(booking)
            self._undo.append((self.state.capacity.claim, booking))

    def promote(self, attempt: AttemptRecord) -> bool:
        """As if the claim of an attempt were allocated. Not while another is still in the way."""
        return self.keep_promise(attempt.bookings)

    def keep_promise(self, bookings: Iterable[Booking]) -> bool:
        """As if what was claimed were allocated. Not while an attempt is still in the way."""
        mark = self.mark()
        self.unclaim(bookings)
        if self.hold(bookings):
            return True
        self.undo_to(mark)
        return False

    def step_in_cells(self, undone: int, steps: tuple[CellStep, ...]) -> None:
        """Takes note of steps among the cells, before which the log of the cells was so long."""
        before = len(self.cell_steps)
        self.cell_steps.extend(steps)
        self._undo.append((self._step_back, (before, undone)))

    def leave_cells(self, attempt: AttemptRecord) -> None:
        """As if an attempt had no cells any more, where there are any."""
        if self.state.cells is not None:
            undone = self.state.cells.undo.mark()
            self.state.cells.gone(attempt.key)
            self.step_in_cells(undone, ())

    def _step_back(self, where: tuple[int, int]) -> None:
        before, undone = where
        del self.cell_steps[before:]
        assert self.state.cells is not None, "no steps without cells"
        self.state.cells.undo.undo_to(undone)
