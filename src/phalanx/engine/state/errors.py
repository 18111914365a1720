"""Errors of the State that those who fold events in tell apart."""

from __future__ import annotations


class UnknownJobError(ValueError):
    """An event names a job that was never submitted."""


class NeverFitsError(ValueError):
    """A job asks for more than its queue or virtual cluster could ever have, whoever runs."""
