"""Advisers: solvers that policies ask at a wake-up. Their rounded answers are journaled, so that replays need none."""
