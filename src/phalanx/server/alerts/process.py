"""The process of the watch: follows the journal, tells the webhook, and stops or drains where a rule says so."""

from __future__ import annotations

import logging
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
from sqlalchemy import Connection, select

from phalanx.cluster.cluster import Health
from phalanx.engine.state.journal import decode
from phalanx.engine.state.records import JobState
from phalanx.errors import PhalanxError
from phalanx.server.alerts.line import ask_loop
from phalanx.server.alerts.rules import Rules, Then, read_rules
from phalanx.server.alerts.watch import Alert, Watch
from phalanx.server.clock import wall_ms
from phalanx.server.log import log_to_stderr
from phalanx.server.loop.wire import Caller, ChangeJob, ChangeNode, KeepAlerts, Mutation
from phalanx.server.options import Options, options_of
from phalanx.server.store.database import Database, open_reader
from phalanx.server.store.journal import entries, first_after, said_by
from phalanx.server.store.tables import alerts, jobs

EVERY_S = 2.0
WEBHOOK_S = 10.0
REPORTS_MAX = 2_000
"""Reports of one job that are recalled at a start: hours of them, and read in milliseconds."""

WATCHED = ("Progress", "AttemptEnded", "JobCancelled", "Decision", "NodeHealthChanged")


class Watchman:
    """Looks at the journal now and then, and does what the rules say."""

    def __init__(self, options: Options, rules: Rules, log: logging.Logger) -> None:
        self._options = options
        self._rules = rules
        self._log = log
        self._watch = Watch(rules.rules)
        self._database: Database = open_reader(options.store_url)
        with self._database.reading() as connection:
            self._seq = first_after(connection, wall_ms() - self._watch.horizon_ms) - 1
            self._recall(connection)
            self._known = {(row.rule, row.subject) for row in connection.execute(select(alerts))}

    def _recall(self, connection: Connection) -> None:
        """Takes note of what running jobs said before: one that has been stuck for long said it long ago."""
        for job in connection.execute(select(jobs.c.id).where(jobs.c.state == JobState.RUNNING.value)).scalars().all():
            for entry in said_by(connection, job, "Progress", self._seq, REPORTS_MAX):
                self._watch.note(decode(entry.line).body, entry.now_ms)

    def look(self) -> None:
        """Catches up, and tells of what has begun and what is over."""
        with self._database.reading() as connection:
            self._catch_up(connection)
        firing = self._watch.firing(wall_ms())
        names = {(alert.rule, alert.subject) for alert in firing}
        begun = [alert for alert in firing if (alert.rule, alert.subject) not in self._known]
        over = self._known - names
        if not begun and not over:
            return
        # Kept first: to tell twice after a crash is not in vain, to stop twice is.
        self._ask(KeepAlerts([(a.rule, a.subject, a.since_ms, a.value, a.then.value) for a in firing]))
        self._known = names
        for alert in begun:
            self._tell({"status": "firing", **_plain(alert)})
            self._act(alert)
        for rule, subject in sorted(over):
            self._tell({"status": "resolved", "rule": rule, "subject": subject})

    def _catch_up(self, connection: Connection) -> None:
        while chunk := entries(connection, self._seq):
            for entry in chunk:
                if entry.type in WATCHED:
                    self._watch.note(decode(entry.line).body, entry.now_ms)
            self._seq = chunk[-1].seq

    def _act(self, alert: Alert) -> None:
        if alert.then is Then.STOP:
            self._ask(ChangeJob(alert.subject, "cancel", reason=f"stopped by the alert rule {alert.rule}"))
        elif alert.then is Then.DRAIN:
            self._ask(ChangeNode(alert.subject, Health.DRAINING.value, f"alert {alert.rule}"))

    def _ask(self, body: Mutation) -> None:
        answer = ask_loop(self._options.file("run", "engine.sock"), Caller("alerts"), body)
        if answer.status >= 400:
            self._log.warning("refused", extra={"answer": answer.body.decode()})

    def _tell(self, told: dict[str, object]) -> None:
        self._log.warning("alert", extra=told)
        if not self._rules.webhook:
            return
        request = urllib.request.Request(
            self._rules.webhook,
            msgspec.json.encode({**told, "server": self._options.url, "at_ms": wall_ms()}),
            {"Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=WEBHOOK_S).close()
        except (OSError, urllib.error.URLError, ValueError) as error:
            self._log.error(f"the webhook could not be told: {error}")


def main(handle: str) -> int:
    """Watches until it is ended. `handle` is the number of the file that holds the server's options."""
    options = options_of(handle)
    log = log_to_stderr("alerts")
    try:
        watchman = Watchman(options, read_rules(Path(options.alerts).read_text(), options.alerts), log)
    except (PhalanxError, OSError, UnicodeDecodeError) as error:
        log.error(str(error))
        return 1
    while True:
        try:
            watchman.look()
        except (PhalanxError, OSError) as error:
            log.error(str(error))
        time.sleep(EVERY_S)


def _plain(alert: Alert) -> dict[str, object]:
    return alert._asdict() | {"then": alert.then.value}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
