"""Errors of the State that the code that folds events in tells apart."""

from __future__ import annotations


class UnknownJobError(ValueError):
    """An event names a job that was never submitted."""


class NeverFitsError(ValueError):
    """A job asks for more than its queue or virtual cluster could ever have, whatever runs."""
