"""The one exception that users are meant to read."""

from __future__ import annotations

from typing import ClassVar


class PhalanxError(Exception):
    """Something the caller can put right: its text names the thing, the place and what was expected.

    The command line prints the text as one line and exits with `exit_code`; a subclass sets another code.
    """

    exit_code: ClassVar[int] = 1
