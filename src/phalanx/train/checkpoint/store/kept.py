"""Answers that are kept for the next time, the least used forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """Up to `most` answers by the digest of their question, so that large questions are not kept too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers: OrderedDict[str, Answer] = OrderedDict()
        self.worked_out = 0

    def answer(self, question: str, work_out: Callable[[], Answer]) -> Answer:
        if question in self._answers:
            self._answers.move_to_end(question)
            return self._answers[question]
        self.worked_out += 1
        found = self._answers[question] = work_out()
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return found

    def forget(self) -> None:
        self._answers.clear()
        self.worked_out = 0
