"""The process of the loop: recovers the State, opens the inbox, and takes turns until it is told to stop."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection

from phalanx.backends.capability import Capability, Offer
from phalanx.backends.live import FoundAttempt, History, LiveBackend, attempts_asked_for
from phalanx.backends.registry import Setting, backend_names, cluster_of, offer_of, open_backend
from phalanx.cluster.cluster import Cluster, flat
from phalanx.cluster.formats.native import read_cluster
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.errors import PhalanxError
from phalanx.faults.health.canary import read_canary
from phalanx.faults.health.quarantine import Rules
from phalanx.faults.health.watch import NodeWatch
from phalanx.protocol.event import ClusterDefined, TermBegun
from phalanx.server.accounts.cache_epoch import CacheEpoch
from phalanx.server.accounts.ledger import change, has_users, locked_out_admin
from phalanx.server.accounts.revocations import Revocations
from phalanx.server.accounts.roles import ALL_SCOPES, ROOT, Role, text_of
from phalanx.server.accounts.tokens import attempt_token, new_token
from phalanx.server.clock import Clock
from phalanx.server.cluster.live_cluster import live
from phalanx.server.cluster.simulated import write_gpus, write_simulated
from phalanx.server.heartbeat import Heartbeat
from phalanx.server.installed import load_installed_policies
from phalanx.server.log import log_to_stderr
from phalanx.server.loop import notices
from phalanx.server.loop.admission import Admission
from phalanx.server.loop.inbox import Inbox
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.loop import Loop, Surroundings
from phalanx.server.loop.loop_metrics import LoopMetrics
from phalanx.server.loop.mark import Mark
from phalanx.server.loop.restoration import Beginning, beginning, is_unsettled, reached, write_restored
from phalanx.server.loop.restoration import settle as settle_restored
from phalanx.server.loop.snapshotter import Snapshotter
from phalanx.server.loop.wire import AddToken, PutRole, PutUser, json_of
from phalanx.server.options import Options, options_of
from phalanx.server.refusal import Refusal
from phalanx.server.rehearsal import RehearsalBackend, rehearsal_offer
from phalanx.server.reserve import Reserve
from phalanx.server.secrets.access import values_for
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.store import settings
from phalanx.server.store.database import Database, FullStoreError, StoreError, open_database
from phalanx.server.store.lineage import Lineage, write_lineage
from phalanx.server.store.recovery import recover
from phalanx.server.store.snapshots import newest_first
from phalanx.server.unheeded import unheeded, write_unheeded
from phalanx.simulate.plugins import read_policy
from phalanx.workload.job import Job, UnixIdentity

ROOM_BYTES = 64 << 20
"""Below so much free space no new work is taken: what runs must still be able to write down how it ends."""

PLANNED = (Capability.RESIZE, Capability.SUSPEND, Capability.FRACTION, Capability.MPS, Capability.MIG)
"""What the engine plans with, unless the backend cannot do it."""

COLLECT = (200_000, 50, 50)
"""How seldom garbage is looked for: a State grows by what stays, and looking through it again finds nothing. A decision
over thousands of kinds of jobs makes tens of thousands of small things, which are gone by themselves when it ends.
"""

BROKEN = 3
"""The exit code of a loop whose store cannot be written: the process that started it may start it again."""


class LoopError(PhalanxError):
    """The loop cannot start."""


def main(handle: str) -> int:
    """Runs the loop of a server. `handle` is the number of the file that holds its options."""
    options = options_of(handle)
    log = log_to_stderr("loop")
    load_installed_policies(log)
    reserve = Reserve(options.file("run", "reserve"))
    try:
        database = open_database(options.store_url)
        state, begun = _state_of(database, options)
        loop, inbox = _loop(database, state, begun, options)
    except FullStoreError as error:
        return _give_reserve(reserve, error, log)
    except PhalanxError as error:
        log.error(str(error))
        return 1
    reserve.hold(ROOM_BYTES)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.stop())
    gc.set_threshold(*COLLECT)
    log.info("ready", extra={"seq": state.seq, "jobs": len(state.jobs)})
    try:
        loop.run()
    except FullStoreError as error:
        return _give_reserve(reserve, error, log)
    except StoreError as error:
        log.error(str(error))
        return BROKEN
    finally:
        inbox.close()
    return 0


def _give_reserve(reserve: Reserve, error: FullStoreError, log: logging.Logger) -> int:
    """Frees space for what must be written down: the next loop has that, and takes no new work."""
    log.error(f"{error}; the reserve was given up" if reserve.give() else str(error))
    return BROKEN


def _state_of(database: Database, options: Options) -> tuple[State, Beginning]:
    with database.reading() as connection:
        state = recover(connection, database.url)
        begun = beginning(connection, state, Path(options.data), Clock(state.now).now_ms())
    with database.writing() as connection:
        book = JournalWriter(state)
        try:
            record(state, book.journal, _first_event(state, begun.term, options), begun.now)
        except ValueError as error:
            raise LoopError(f"the cluster cannot be defined: {error}") from error
        book.write(connection)
        write_lineage(connection, begun.lineage)
        if settings.get(connection, "secret") is None:
            settings.put(connection, "secret", secrets.token_bytes(32))
        if not has_users(connection):
            _first_admin(connection, options.file("admin.token"))
        _shut_out(connection, begun, options)
    return state, begun


def _first_event(state: State, term: int, options: Options) -> ClusterDefined | TermBegun:
    """What a leader says first: with what it plans, and that no leader before it leads any more."""
    if state.seq >= 0:
        write_unheeded(options.file("run"), unheeded(state, options, lambda asked: live(_cluster_of(asked))))
        offer = _offer(options, state.cluster)
        return TermBegun(term, _lacks(offer), offer.suspend)
    write_unheeded(options.file("run"), [])
    cluster = live(_cluster_of(options))
    offer = _offer(options, cluster)
    policy = options.policy or cluster.policy
    return ClusterDefined(cluster, policy, term=term, lacks=_lacks(offer), suspend=offer.suspend)


def _shut_out(connection: Connection, begun: Beginning, options: Options) -> None:
    """Keeps out of a restored store which tokens and users were shut out; an admin can always come in."""
    revocations = Revocations(options.file("backend"))
    if not begun.told:
        revocations.revoke(connection, begun.now)
        return
    write_restored(connection, begun, revocations.apply(connection, begun.now))
    admin = locked_out_admin(connection, begun.now)
    if admin:
        _give_token(connection, admin, "restored", options.file("admin.token"))


def _offer(options: Options, cluster: Cluster) -> Offer:
    """What the backend can do."""
    if options.backend == "rehearsal":
        return rehearsal_offer()
    if options.backend not in backend_names():
        known = ", ".join([*backend_names(), "rehearsal"])
        raise LoopError(f"backend '{options.backend}': there is none of that name; expected one of {known}")
    return offer_of(options.backend, Setting(Path(options.data), _no_job, cluster))


def _lacks(offer: Offer) -> tuple[str, ...]:
    """What of that which is planned with the backend cannot do."""
    return tuple(each.value for each in PLANNED if not offer.can(each))


def _no_job(job: str) -> Job:
    raise KeyError(job)


def _first_admin(connection: Connection, path: Path) -> None:
    """Makes the first account. Its token is in a file that only this user can read, and nowhere else."""
    now = Clock().now_ms()
    change(connection, PutUser("admin", new=True), now)
    change(connection, PutRole("admin", ROOT, Role.ADMIN.value), now)
    _give_token(connection, "admin", "first", path)


def _give_token(connection: Connection, admin: str, name: str, path: Path) -> None:
    token = new_token()
    change(connection, AddToken(token.id, admin, name, token.digest, text_of(ALL_SCOPES)), Clock().now_ms())
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token.token + "\n")


def _cluster_of(options: Options) -> Cluster:
    if options.cluster:
        path = Path(options.cluster)
        try:
            return read_cluster(path.read_text(), options.cluster, read_policy, Clock().now_ms())
        except (OSError, UnicodeDecodeError) as error:
            raise LoopError(f"{options.cluster}: {error}") from error
    if options.backend == "local":
        from phalanx.backends.local.host.machine import cluster_for, simulated_cluster

        return (simulated_cluster if options.simulate else cluster_for)(options.nodes, options.gpus)
    known = None if options.backend == "rehearsal" else cluster_of(options.backend)
    if known is not None:
        return known
    return flat(options.nodes or 1, options.gpus or 8)


def _backend_of(
    state: State, database: Database, history: History, options: Options, admission: Admission
) -> LiveBackend:
    with database.reading() as connection:
        secret = settings.get(connection, "secret") or b""

    def environment(job: str, attempt: int) -> dict[str, str]:
        trust = {"PHALANX_CA_FILE": options.tls_cert} if options.tls_cert else {}
        return {
            "PHALANX_PROGRESS_URL": f"{options.url}/api/v1/jobs/{job}/progress",
            "PHALANX_PROGRESS_TOKEN": attempt_token(secret, job, attempt, history.incarnation(job, attempt)),
            **trust,
        }

    def job_of(job: str) -> Job:
        return state.record(job).job

    if options.backend == "rehearsal":
        return RehearsalBackend(job_of, lambda job: state.record(job).executed_ms(state.now))

    def identity(job: Job) -> UnixIdentity | None:
        with database.reading() as connection:
            return admission.identity_at_start(connection, job)

    def secrets_of(job: Job) -> dict[str, str]:
        if not job.execution.secrets:
            return {}
        with database.reading() as connection:
            return values_for(connection, SecretFolder(options.file("secrets")), job)

    setting = Setting(
        Path(options.data),
        job_of,
        state.cluster,
        environment,
        identity,
        options.turn_s * 1000,
        tuple(path for path in (*options.private, options.tls_key) if path),
        secrets_of,
        history,
        lambda: state.cluster_to_be or state.cluster,
    )
    return open_backend(options.backend, setting)


def _history_of(state: State, lineage: Lineage, restored: bool, found: list[FoundAttempt]) -> History:
    def incarnation(job: str, number: int) -> str:
        attempt = state.attempt(job, number)
        return lineage.at(attempt.created_ms) if attempt is not None else lineage.present

    return History(
        present=lineage.present,
        incarnations=lineage.ids,
        incarnation=incarnation,
        attempts=lambda job: attempts_asked_for(state, job),
        restored=restored,
        found=found.append,
    )


def _loop(database: Database, state: State, begun: Beginning, options: Options) -> tuple[Loop, Inbox]:
    log = log_to_stderr("loop")
    found: list[FoundAttempt] = []
    with database.reading() as connection:
        restored, far = is_unsettled(connection), reached(connection, state)
    admission = Admission(options)
    history = _history_of(state, begun.lineage, restored, found)
    backend = _backend_of(state, database, history, options, admission)
    with database.writing() as connection:
        newest = newest_first(connection)
        kept = notices.kept_of(settings.get(connection, notices.KEY))
        settings.put(connection, "backend", _told(offer := backend.offer()))
    with suppress(OSError):
        write_simulated(options.file("run"), (node.name for node in state.cluster.nodes), offer.real_nodes)
        write_gpus(options.file("run"), state.cluster.gpus)
    mark, revocations = Mark(options.file("backend")), Revocations(options.file("backend"))
    mark.begin(begun.lineage.present, far)
    with database.reading() as connection, suppress(OSError):
        revocations.learn(connection)
    told = options.file("run", "restored")
    told.unlink(missing_ok=True)

    def settle() -> None:
        if restored:
            with database.writing() as connection:
                line = settle_restored(connection, found, begun.now)
            with suppress(OSError):
                told.write_text(line)
            log.warning(line, extra={"found": [f"{each.job}/{each.attempt}" for each in found]})

    cache_epoch = CacheEpoch(options.file("run"))
    cache_epoch.advance()
    inbox = Inbox(options.file("run", "engine.sock"), log.warning)
    around = Surroundings(
        database=database,
        backend=backend,
        inbox=inbox,
        clock=Clock(state.now),
        cache_epoch=cache_epoch,
        heartbeat=Heartbeat(options.file("run")),
        snapshotter=Snapshotter(options.store_url, newest[0].seq if newest else -1, inbox.leave_open, log.warning),
        loop_metrics=LoopMetrics(_Publisher(options.file("run", "pulse.json")), Clock().now_ms()),
        admission=admission,
        need_room=_Room(options.data),
        tell=log.warning,
        secrets=SecretFolder(options.file("secrets")),
        mark=mark,
        revocations=revocations,
        lineage=begun.lineage,
        reached=far,
        settle=settle,
        notices=kept,
        watch=_watch(state, options),
    )
    return Loop(state, around), inbox


def _watch(state: State, options: Options) -> NodeWatch | None:
    """The watch over nodes, where there is to be one."""
    if not options.quarantine:
        return None
    first_ms = int(options.quarantine_s * 1000)
    rules = Rules(share_max=options.quarantine, first_ms=first_ms, longest_ms=max(first_ms, Rules().longest_ms))
    return NodeWatch(state, rules, read_canary(options.canary, "--canary") if options.canary else None)


def _told(offer: Offer) -> bytes:
    return json_of(
        {
            "name": offer.name,
            "summary": offer.summary,
            "can": [each.value for each in offer.has],
            "lacks": offer.lacks,
            "real_nodes": offer.real_nodes,
            "simulated": offer.simulated,
        }
    )


class _Publisher:
    """Writes figures where the API finds them, whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_suffix(".part")

    def __call__(self, content: bytes) -> None:
        try:
            self._beside.write_bytes(content)
            self._beside.replace(self._path)
        except OSError:
            # A full disk must not end the loop for want of figures.
            return


class _Room:
    """Refuses new work while the disk is nearly full. Looks at most once a second."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._looked_s = float("-inf")
        self._free_bytes = 0

    def __call__(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s > 1:
            self._looked_s = now_s
            self._free_bytes = shutil.disk_usage(self._folder).free
        if self._free_bytes < ROOM_BYTES:
            raise Refusal(
                "storage_full",
                f"the disk of the server is full ({self._free_bytes >> 20} MB free, {ROOM_BYTES >> 20} needed): "
                "no new work is taken until there is room; what runs goes on",
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
