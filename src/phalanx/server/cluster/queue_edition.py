"""The queues of a cluster as its file would say them, and by what two editions of them are told apart."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from phalanx.cluster.formats.queue_data import queue_data
from phalanx.cluster.queues import Queue

LENGTH = 16


def edition_of(said: list[dict[str, Any]]) -> str:
    """The name of what is said of queues: the same wherever it is the same."""
    return sha256(msgspec.json.encode(said)).hexdigest()[:LENGTH]


def edition(queues: tuple[Queue, ...]) -> str:
    """The name of the edition of queues."""
    return edition_of(queue_data(queues))
