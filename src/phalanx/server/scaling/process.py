"""The process that asks Prometheus for the loads of services, so that no answer that is late holds up the loop."""

from __future__ import annotations

import logging
import sys
import time

from phalanx.errors import PhalanxError
from phalanx.server.alerts.line import ask_loop
from phalanx.server.log import log_to_stderr
from phalanx.server.loop.wire import Caller, QueriedLoad, ReportLoads
from phalanx.server.options import Options, options_of
from phalanx.server.scaling.prometheus import DownError, QueryError, ask
from phalanx.server.scaling.scaler import followed_in
from phalanx.server.store.database import open_reader

EVERY_S = 5.0


class Asker:
    """Asks for all services in turn."""

    def __init__(self, options: Options, log: logging.Logger) -> None:
        self._options = options
        self._log = log
        self._database = open_reader(options.store_url)
        self._problem = ""

    def look(self) -> None:
        """Asks once for every service that has a query, and tells the loop."""
        with self._database.reading() as connection:
            queries = {job: each.query for job, each in followed_in(connection).items() if each.query}
        if not queries:
            return
        loads = self._asked(queries)
        answer = ask_loop(self._options.file("run", "engine.sock"), Caller("scaling"), ReportLoads(loads))
        if answer.status >= 400:
            self._log.warning("refused", extra={"answer": answer.body.decode()})

    def _asked(self, queries: dict[str, str]) -> list[QueriedLoad]:
        loads, down = [], ""
        for job, query in queries.items():
            value, problem = None, down
            if not down:
                try:
                    value = ask(self._options.prometheus, query)
                except DownError as error:
                    # No query would be answered: to wait for every one of them would take minutes.
                    problem = down = str(error)
                except QueryError as error:
                    problem = str(error)
            loads.append(QueriedLoad(job, query, value, problem))
        self._tell(down)
        return loads

    def _tell(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._log.warning(problem or "Prometheus answers again")


def main(handle: str) -> int:
    """Asks until it is ended. `handle` is the number of the file that holds the server's options."""
    log = log_to_stderr("scaling")
    try:
        asker = Asker(options_of(handle), log)
    except PhalanxError as error:
        log.error(str(error))
        return 1
    while True:
        try:
            asker.look()
        except (PhalanxError, OSError) as error:
            log.error(str(error))
        time.sleep(EVERY_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
