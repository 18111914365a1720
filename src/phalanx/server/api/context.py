"""What every request of a worker may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.accounts.checker import PasswordChecker
from phalanx.server.accounts.ledger import account_of_digest
from phalanx.server.accounts.roles import Account
from phalanx.server.accounts.tokens import digest_of
from phalanx.server.api.admission.renewals import Renewals
from phalanx.server.api.engine import Engine
from phalanx.server.api.figures import HttpFigures
from phalanx.server.api.file_threads import FileThreads
from phalanx.server.api.overview.board import Board
from phalanx.server.api.streams.slots import OpenConnections
from phalanx.server.clock import wall_ms
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.options import Options
from phalanx.server.past.reading import Told
from phalanx.server.refusal import Refusal
from phalanx.server.store import settings
from phalanx.server.store.database import Database
from phalanx.server.store.reasons import Waiting

Found = TypeVar("Found")

SHOWN: ContextVar[Moment | None] = ContextVar("moment", default=None)
"""The past moment that a request is about."""

ACCOUNTS_KEPT = 10_000
RECENT_MS = 200
"""How old what is known of GPU types and queues may be: they change seldom, and every submission asks for them."""


@dataclass(slots=True)
class WaitingCounts:
    """The pending jobs, as they were last counted, and when that was."""

    groups: list[Waiting] = field(default_factory=list)
    counted_s: float = float("-inf")
    one: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Moment:
    """A past moment: the record after which it is, its picture, and what is kept of it as of the present."""

    at_ms: int
    seq: int
    database: Database
    folder: Path
    told: Told
    board: Board = field(default_factory=Board)
    waiting: WaitingCounts = field(default_factory=WaitingCounts)


@dataclass(slots=True)
class Context:
    """A worker: its options, its view of the store, its line to the loop and its figures."""

    options: Options
    database: Database
    engine: Engine
    figures: HttpFigures
    cache_epoch: CacheEpoch
    heartbeat: Heartbeat
    connections: OpenConnections = field(default_factory=OpenConnections)
    _files: FileThreads = field(default_factory=FileThreads)
    passwords: PasswordChecker = field(default_factory=PasswordChecker)
    renewals: Renewals = field(init=False)
    _board: Board = field(default_factory=Board)
    _waiting: WaitingCounts = field(default_factory=WaitingCounts)
    pictures: dict[tuple[int, int], Moment] = field(default_factory=dict)
    """Pictures that are open, by record and moment, the last used last. To open or close one takes `looking_back`."""
    looking_back: asyncio.Lock = field(default_factory=asyncio.Lock)
    _accounts: dict[str, tuple[Account, int]] = field(default_factory=dict)
    _accounts_of: int = -1
    known_queues: dict[str, None] = field(default_factory=dict)
    _cluster: tuple[int, dict[str, Any]] = (0, {})
    _secret: bytes | None = None

    def __post_init__(self) -> None:
        self.renewals = Renewals(self.engine)

    def now_ms(self) -> int:
        """The moment that is shown: now, or that of the last record of a journal that is opened, or a past one."""
        moment = SHOWN.get()
        if moment is not None:
            return moment.at_ms
        return self.options.shown.last_ms if self.options.shown else wall_ms()

    @property
    def trouble(self) -> str:
        """Why the server takes no work; empty where it does, or is not to take any."""
        if self.options.shown:
            return ""
        return self.heartbeat.trouble if self.engine.connected else self.engine.trouble

    @property
    def outlook_folder(self) -> Path:
        """Where the planner's outlook is, of the moment that is shown."""
        moment = SHOWN.get()
        return moment.folder if moment is not None else self.options.file("run")

    @property
    def board(self) -> Board:
        """The devices, of the moment that is shown."""
        moment = SHOWN.get()
        return moment.board if moment is not None else self._board

    @property
    def waiting(self) -> WaitingCounts:
        """The pending jobs, of the moment that is shown."""
        moment = SHOWN.get()
        return moment.waiting if moment is not None else self._waiting

    async def read(self, query: Callable[..., Found], *arguments: object) -> Found:
        """Runs a query of the store beside everything else, of the moment that is shown."""
        moment = SHOWN.get()
        database = moment.database if moment is not None else self.database
        return await run_in_threadpool(_read, database, query, *arguments)

    async def read_now(self, query: Callable[..., Found], *arguments: object) -> Found:
        """The same of the present, whatever is shown: who is a user is asked of the present."""
        return await run_in_threadpool(_read, self.database, query, *arguments)

    async def of_file(self, user: str, look: Callable[..., Found], *arguments: object) -> Found:
        """Reads from a file of a job for a user beside everything else, on threads that nothing else uses."""
        return await self._files.run(user, look, *arguments)

    async def account(self, token: str) -> Account | None:
        """The account that a token stands for. Known ones are kept while no account changes."""
        cache_epoch = self.cache_epoch.number
        if cache_epoch != self._accounts_of or len(self._accounts) > ACCOUNTS_KEPT:
            self._accounts, self._accounts_of = {}, cache_epoch
        # What is read below belongs to the epoch that was in force before it was read, even if that ends meanwhile.
        kept = self._accounts
        digest = digest_of(token)
        known = kept.get(digest)
        if known is not None and wall_ms() - known[1] < 1_000:
            return known[0]
        found = await self.read_now(account_of_digest, digest, wall_ms())
        if found is not None:
            kept[digest] = (found, wall_ms())
        return found

    async def secret(self) -> bytes:
        """What the tokens of attempts are signed with."""
        if self._secret is None:
            self._secret = await self.read_now(settings.get, "secret")
        if self._secret is None:
            raise Refusal("unavailable", "the engine is starting: try again in a moment", {"retry_after_s": 1})
        return self._secret

    async def cluster(self) -> dict[str, Any]:
        """What is known of the cluster as a whole."""
        return await self.read(_cluster)

    async def recent_cluster(self) -> dict[str, Any]:
        """What is or was known of the cluster a moment ago."""
        now_ms = wall_ms()
        if now_ms - self._cluster[0] > RECENT_MS:
            self._cluster = (now_ms, await self.cluster())
        return self._cluster[1]

    async def gpu_types(self) -> tuple[str, ...]:
        """The GPU types of the cluster, as they are or were a moment ago."""
        return tuple((await self.recent_cluster()).get("gpu_types", ()))


def _read(database: Database, query: Callable[..., Found], *arguments: object) -> Found:
    with database.reading() as connection:
        return query(connection, *arguments)


def _cluster(connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(settings.get(connection, "cluster") or b"{}")
    return found


def context_of(request: Request) -> Context:
    """The worker's context."""
    context: Context = request.app.state.context
    return context
