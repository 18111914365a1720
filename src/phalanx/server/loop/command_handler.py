"""The command handler: does what is asked for, one mutation at a time, in the transaction that makes it durable.

What may not be is refused before anything changes. Whether a caller may ask for it was checked by the API worker that
passed the request on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatchmethod
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from phalanx.engine.fold.check import check, check_labels
from phalanx.engine.state.errors import UnknownJobError
from phalanx.engine.state.records import JobRecord, Phase
from phalanx.engine.state.state import State
from phalanx.engine.turn import record
from phalanx.protocol.event import (
    JobCancelled,
    JobChanged,
    JobHeld,
    JobReleased,
    JobRequeued,
    JobSubmitted,
    PolicyChanged,
)
from phalanx.server.accounts import ledger
from phalanx.server.accounts.revocations import Line, lines_of
from phalanx.server.accounts.roles import Role
from phalanx.server.cluster.difference import changes_of, need_known, present_cluster
from phalanx.server.cluster.priorities import need_priority
from phalanx.server.cluster.queue_edition import edition
from phalanx.server.cluster.solver import need_adviser
from phalanx.server.fresh import fresh_item
from phalanx.server.health.said import events_of, need_rest
from phalanx.server.loop.admission import Admission
from phalanx.server.loop.audited import described, verb_of
from phalanx.server.loop.journal_writer import JournalWriter
from phalanx.server.loop.notices import Notices
from phalanx.server.loop.numbering import apart, is_number, names_others, numbered
from phalanx.server.loop.reports import Reports
from phalanx.server.loop.resizing import resized
from phalanx.server.loop.updating import updated
from phalanx.server.loop.user_jobs import need_no_jobs_of, of_waiting
from phalanx.server.loop.wire import (
    AddToken,
    Answer,
    AskCheckpoint,
    Caller,
    ChangeArray,
    ChangeCluster,
    ChangeJob,
    ChangeNode,
    ChangePolicy,
    ChangeSettings,
    DropSecret,
    DropUser,
    GrantSecret,
    KeepAlerts,
    KeepToldStart,
    Mutation,
    PutRole,
    PutSecret,
    PutUser,
    RefuseLogin,
    RenewSession,
    ReportLoads,
    ReportProgress,
    Request,
    ResizeJob,
    RevokeToken,
    RunBeside,
    SubmitJobs,
    UpdateJobs,
    json_of,
)
from phalanx.server.refusal import Refusal
from phalanx.server.secrets import keeper
from phalanx.server.secrets.access import need_granted, need_granted_beside
from phalanx.server.secrets.folder import SecretFolder
from phalanx.server.store.bulk import Bulk
from phalanx.server.store.forecasts import keep_told_start
from phalanx.server.store.lineage import Lineage
from phalanx.server.store.tables import alerts, audit, idempotency
from phalanx.workload.after import Circle, bound, by_dependency
from phalanx.workload.array import members
from phalanx.workload.job import Job

VERBS: dict[str, Callable[[ChangeJob], tuple[JobCancelled | JobHeld | JobReleased | JobRequeued, ...]]] = {
    "cancel": lambda asked: (JobCancelled(asked.job, asked.reason),),
    "hold": lambda asked: (JobHeld(asked.job),),
    "release": lambda asked: (JobReleased(asked.job),),
    "requeue": lambda asked: (JobRequeued(asked.job),),
    "suspend": lambda asked: (JobHeld(asked.job), JobRequeued(asked.job)),
    "resume": lambda asked: (JobReleased(asked.job),),
}
DETAIL_MAX = 500
KEY_MS = 86_400_000
"""How long a repeated request is recognised by its key."""

TIDY_MS = 600_000
BEFORE_ALL = Lineage()
AUDITED = Bulk(audit, without=("number",))
KEPT_ALERTS = Bulk(alerts)


class CommandHandler:
    """Carries out mutations on a State. `need_room` refuses new work where there is no room to write it down;
    `secrets` is where the values of secrets are kept.

    No job gets an id below `next_id`; `lineage` tells the incarnation of an attempt.
    """

    def __init__(
        self,
        state: State,
        book: JournalWriter,
        notices: Notices,
        admission: Admission,
        need_room: Callable[[], None],
        secrets: SecretFolder | None = None,
        next_id: int = 1,
        lineage: Lineage = BEFORE_ALL,
    ) -> None:
        self._state = state
        self._secrets = secrets
        self._book = book
        self._journal = book.journal
        self._notices = notices
        self._admission = admission
        self._need_room = need_room
        highest = max((int(job.partition(".")[0]) for job in state.jobs if is_number(job)), default=0)
        self.next_id = max(next_id, highest + 1)
        self._reports = Reports(state, lineage)
        self._now = 0
        self._connection: Connection | None = None
        self._caller = Caller("")
        self._entries: list[dict[str, Any]] = []
        self._tidied_ms = 0
        self._account_changes = 0
        self._shut_out: list[Line] = []

    def take_id(self) -> str:
        """The id of a job that the scheduler submits itself."""
        self.next_id += 1
        return str(self.next_id - 1)

    def answer(self, connection: Connection, request: Request, now: int) -> Answer:
        """Carries out a request. The answer may be sent once the transaction is durable."""
        self._connection, self._caller, self._now = connection, request.caller, now
        body = request.body
        repeated = self._repeated(request)
        if repeated is not None:
            return repeated
        try:
            done = self._do(body)
            status, outcome = (201 if isinstance(body, SubmitJobs | AddToken) else 200), "done"
        except Refusal as refusal:
            done, status, outcome = refusal.body, refusal.status, refusal.code
        content = json_of(done)
        if not isinstance(body, ReportProgress | ReportLoads | KeepAlerts | KeepToldStart | RenewSession):
            self._audit(request, done, outcome)
        if isinstance(body, SubmitJobs) and body.key and outcome == "done":
            self._remember(request, body, content)
        return Answer(request.number, status, content)

    def _repeated(self, request: Request) -> Answer | None:
        """The answer of before, to a request that was made before."""
        body = request.body
        if not isinstance(body, SubmitJobs) or not body.key:
            return None
        assert self._connection is not None
        where = (idempotency.c.user == request.caller.user) & (idempotency.c.key == body.key)
        known = self._connection.execute(select(idempotency).where(where)).one_or_none()
        if known is None:
            return None
        if known.body != body.body:
            refusal = Refusal(
                "conflict", f"the Idempotency-Key {body.key!r} was used for another request: take a new one"
            )
            return Answer(request.number, refusal.status, json_of(refusal.body))
        return Answer(request.number, 201, known.answer, repeated=True)

    def _remember(self, request: Request, body: SubmitJobs, content: bytes) -> None:
        assert self._connection is not None
        self._connection.execute(
            insert(idempotency).values(
                user=request.caller.user, key=body.key, body=body.body, answer=content, at_ms=self._now
            )
        )

    def _audit(self, request: Request, done: Any, outcome: str) -> None:
        target, detail = described(request.body, done)
        caller = request.caller
        self._entries.append(
            {
                "at_ms": self._now,
                "user": caller.user,
                "token": caller.token,
                "origin": caller.origin,
                "verb": verb_of(request.body),
                "target": target,
                "detail": detail[:DETAIL_MAX],
                "outcome": outcome,
            }
        )

    def write(self, connection: Connection) -> None:
        """Writes the audit log of what was answered, in the same transaction."""
        AUDITED.run(connection, self._entries)
        self._entries = []
        if self._now - self._tidied_ms > TIDY_MS:
            self._tidied_ms = self._now
            connection.execute(delete(idempotency).where(idempotency.c.at_ms < self._now - KEY_MS))
            ledger.forget_sessions(connection, self._now - KEY_MS)

    def take_account_changes(self) -> tuple[int, list[Line]]:
        """How often accounts have changed since this was last asked, and which tokens and users were shut out."""
        changes, shut_out = self._account_changes, self._shut_out
        self._account_changes, self._shut_out = 0, []
        return changes, shut_out

    @singledispatchmethod
    def _do(self, body: Mutation) -> Any:
        raise TypeError(f"there is no handler for a {type(body).__name__}")

    @_do.register
    def _submit(self, body: SubmitJobs) -> Any:
        assert self._connection is not None
        self._need_room()
        need_granted(self._connection, body, self._caller.user)
        kinds = [self._admission.admitted(self._connection, job) for job in body.jobs]
        named = body.named or [(kind, job.name) for kind, job in enumerate(kinds)]
        families = [members(numbered(kinds[kind], self.next_id + i, name)) for i, (kind, name) in enumerate(named)]
        checked: dict[int, None] = {}
        for index, (kind, _) in enumerate(named):
            if kind not in checked:
                checked[kind] = None
                if body.roles:
                    need_priority(self._state, kinds[kind], Role(body.roles[kind]), index)
                self._check(JobSubmitted(apart(families[index][0])), {"index": index})
        jobs = [member for family in families for member in family]
        if any(names_others(kind) for kind in body.jobs):
            jobs = self._one_after_another(jobs)
        self.next_id += len(families)
        for job in jobs:
            record(self._state, self._journal, JobSubmitted(job), self._now)
        ids = [member.id for family in families for member in family]
        return {"ids": ids, "first": fresh_item(self._state, self._state.jobs[ids[0]])}

    def _one_after_another(self, jobs: list[Job]) -> list[Job]:
        """Jobs that are submitted together, each after those that it waits for."""
        try:
            return by_dependency(bound(jobs))
        except Circle as circle:
            index = int(circle.job.partition(".")[0]) - self.next_id
            raise Refusal("invalid", str(circle), {"index": index}) from None
        except ValueError as error:
            raise Refusal("invalid", str(error)) from None

    @_do.register
    def _change_job(self, body: ChangeJob) -> Any:
        held = self._job(body.job)
        self._match(held, body.version)
        events = VERBS[body.verb](body)
        if body.verb == "suspend" and (held.attempt is None or held.attempt.phase is Phase.CLAIMED):
            # What has not started has nothing to give up.
            events = events[:1]
        for event in events:
            self._check(event)
        if not (body.verb == "cancel" and held.cancelled):
            for event in events:
                record(self._state, self._journal, event, self._now)
        return {"id": body.job}

    @_do.register
    def _change_array(self, body: ChangeArray) -> Any:
        changed = [job for job in body.jobs if self._is_changed(ChangeJob(job, body.verb, reason=body.reason))]
        if not changed:
            raise Refusal("conflict", f"no member of the array {body.array} can be changed any more")
        return {"ids": changed}

    def _is_changed(self, member: ChangeJob) -> bool:
        """Changes a member of an array, unless it has come to a state since in which it cannot be."""
        try:
            self._change_job(member)
        except Refusal:
            return False
        return True

    @_do.register
    def _resize_job(self, body: ResizeJob) -> Any:
        held = self._job(body.job)
        self._match(held, body.version)
        event = JobChanged(resized(held, body.replicas, body.minimum, body.role, self._now))
        self._check(event)
        if event.job != held.job:
            record(self._state, self._journal, event, self._now)
        return {"id": body.job}

    @_do.register
    def _update_jobs(self, body: UpdateJobs) -> Any:
        pending = [held for held in map(self._job, body.jobs) if held.final is None and held.attempt is None]
        if not pending and body.array:
            raise Refusal("conflict", f"no member of the array {body.array} is pending")
        if not pending:
            held = self._job(body.jobs[0])
            raise Refusal("conflict", f"job {held.job.id} {held.state.sentence}: only a pending job can be updated")
        if not body.array:
            self._match(pending[0], body.version)
        # All are looked at before the first is changed.
        for event in [JobChanged(self._updated(held, body)) for held in pending]:
            if event.job != self._job(event.job.id).job:
                record(self._state, self._journal, event, self._now)
        return {"ids": [held.job.id for held in pending]}

    def _updated(self, held: JobRecord, body: UpdateJobs) -> Job:
        assert self._connection is not None
        job = updated(held.job, body)
        if job.queue != held.job.queue:
            self._admission.admitted(self._connection, job)
            need_granted(self._connection, SubmitJobs([job]), self._caller.user)
        need_priority(self._state, job, Role(body.role), 0)
        self._check(JobChanged(job))
        return job

    def _match(self, held: JobRecord, version: int | None) -> None:
        assert self._connection is not None
        if version is not None and version != self._book.version_of(self._connection, held.job.id):
            raise Refusal("precondition_failed", f"job {held.job.id} has changed since: look at it again")

    @_do.register
    def _ask_checkpoint(self, body: AskCheckpoint) -> Any:
        attempt = self._job(body.job).attempt
        if attempt is None or attempt.phase is not Phase.RUNNING:
            raise Refusal("conflict", f"job {body.job} does not run, so it has nothing to save")
        until_ms = self._now + body.within_ms
        self._notices.ask_checkpoint(attempt.key, until_ms, self._now)
        return {"attempt": attempt.number, "asked_ms": self._now, "until_ms": until_ms}

    @_do.register
    def _run_beside(self, body: RunBeside) -> Any:
        assert self._connection is not None
        held = self._job(body.job)
        if held.attempt is None or held.attempt.phase is not Phase.RUNNING:
            raise Refusal("conflict", f"job {body.job} does not run")
        need_granted_beside(self._connection, held.job, self._caller.user)
        return {"attempt": held.attempt.number}

    @_do.register
    def _progress(self, body: ReportProgress) -> Any:
        attempt = self._reports.attempt_of(body)
        events = self._reports.events_of(attempt, body, self._now)
        for event in events:
            self._check(event)
        for event in events:
            record(self._state, self._journal, event, self._now)
        if not body.tells_progress:
            return self._notices.now_for(attempt)
        return self._notices.answer(attempt, body.step, body.durable_step)

    @_do.register
    def _report_loads(self, body: ReportLoads) -> Any:
        for load in body.loads:
            self._book.loads.query(load, self._now)
        return {}

    @_do.register
    def _change_node(self, body: ChangeNode) -> Any:
        if body.node not in self._state.topology.number:
            raise Refusal("not_found", f"there is no node {body.node!r}")
        need_rest(self._state, body)
        for event in events_of(body):
            self._check(event)
        for event in events_of(body):
            record(self._state, self._journal, event, self._now)
        return {"name": body.node}

    @_do.register
    def _change_settings(self, body: ChangeSettings) -> Any:
        cluster = body.settings.on(present_cluster(self._state))
        return self._change_cluster(ChangeCluster(cluster, body.queue_edition))

    @_do.register
    def _change_cluster(self, body: ChangeCluster) -> Any:
        if body.queue_edition and body.queue_edition != edition(present_cluster(self._state).queues):
            raise Refusal("precondition_failed", "the queues have changed since: look at them again")
        try:
            events = changes_of(self._state, body.cluster)
        except ValueError as error:
            raise Refusal("conflict", str(error)) from None
        need_adviser(body.cluster.policy)
        for event in events:
            record(self._state, self._journal, event, self._now)
        return {"changed": [type(event).__name__ for event in events]}

    @_do.register
    def _change_policy(self, body: ChangePolicy) -> Any:
        event = PolicyChanged(body.policy, body.placement)
        try:
            need_known(body.policy)
        except ValueError as error:
            raise Refusal("invalid", str(error)) from None
        self._check(event)
        need_adviser(body.policy)
        record(self._state, self._journal, event, self._now)
        return {"policy": self._state.policy.spec, "placement": body.placement or self._book.placement}

    @_do.register
    def _keep_told_start(self, body: KeepToldStart) -> Any:
        assert self._connection is not None
        self._job(body.job)
        policy = self._state.policy.spec
        return {"kept": keep_told_start(self._connection, body.job, body.told_start_ms, policy, self._now)}

    @_do.register
    def _keep_alerts(self, body: KeepAlerts) -> Any:
        assert self._connection is not None
        self._connection.execute(delete(alerts))
        names = ("rule", "subject", "since_ms", "value", "action")
        KEPT_ALERTS.run(self._connection, [dict(zip(names, alert, strict=True)) for alert in body.firing])
        return {"firing": len(body.firing)}

    @_do.register
    def _renew_session(self, body: RenewSession) -> Any:
        assert self._connection is not None
        return ledger.change(self._connection, body, self._now)

    @_do.register(PutUser)
    @_do.register(DropUser)
    @_do.register(PutRole)
    @_do.register(AddToken)
    @_do.register(RevokeToken)
    def _account(self, body: PutUser | DropUser | PutRole | AddToken | RevokeToken) -> Any:
        assert self._connection is not None
        if isinstance(body, PutUser) and body.new:
            need_no_jobs_of(body.name, self._state, self._connection)
        shut_out = lines_of(self._connection, body)
        done = ledger.change(self._connection, body, self._now)
        self._account_changes += 1
        self._shut_out += shut_out
        self._admission.forget()
        match body:
            case DropUser(name=name):
                self._connection.execute(delete(idempotency).where(idempotency.c.user == name))
                self._to_those_of(name, lambda job: JobCancelled(job, f"cancelled: user '{name}' was deleted"))
            case PutUser(name=name, disabled=True):
                self._to_those_of(name, JobHeld)
        return done

    def _to_those_of(self, user: str, event_for: Callable[[str], JobCancelled | JobHeld]) -> None:
        for event in of_waiting(user, self._state, event_for):
            record(self._state, self._journal, event, self._now)

    @_do.register
    def _refuse_login(self, body: RefuseLogin) -> Any:
        raise Refusal("unauthenticated", "no such user and password")

    @_do.register(PutSecret)
    @_do.register(DropSecret)
    @_do.register(GrantSecret)
    def _secret(self, body: PutSecret | DropSecret | GrantSecret) -> Any:
        assert self._connection is not None
        assert self._secrets is not None, "this office keeps no secrets"
        return keeper.change(self._connection, self._secrets, body, self._now)

    def _job(self, job: str) -> JobRecord:
        try:
            return self._state.record(job)
        except UnknownJobError as error:
            raise Refusal("not_found", str(error)) from None

    def _check(self, event: Any, detail: dict[str, Any] | None = None) -> None:
        try:
            check(self._state, event)
            if isinstance(event, JobSubmitted | JobChanged):
                check_labels(self._state.policy, event.job)
        except ValueError as error:
            final = isinstance(event, JobCancelled | JobHeld | JobReleased | JobChanged)
            reason = str(error)
            if isinstance(event, JobSubmitted):
                # The caller has been told no id of what is not taken.
                reason = reason.replace(f"job {event.job.id}", "the job", 1)
            raise Refusal("conflict" if final else "invalid", reason, detail) from None
