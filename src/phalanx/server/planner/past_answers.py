"""How questions about the past are answered: with the State after a record, and pictures of it."""

from __future__ import annotations

from contextlib import closing

from phalanx.errors import PhalanxError
from phalanx.server.loop.wire import json_of
from phalanx.server.options import Options
from phalanx.server.past.moments import PICTURES, STATES, Moments, state_after
from phalanx.server.past.picture import draw, name_of
from phalanx.server.planner.answers import answer
from phalanx.server.planner.future import pass_time
from phalanx.server.planner.questions import Asked, DrawPicture, Reply, question_of
from phalanx.server.refusal import Refusal
from phalanx.server.store.database import database_file, open_reader


def answer_of_past(asked: Asked, options: Options) -> Reply:
    """Answers a question about a moment. This process is a copy that may use its memory up; it opens its own store."""
    question = question_of(asked)
    store = database_file(options.store_url)
    try:
        if store is None:
            raise Refusal("invalid", "the past is not shown of a store in PostgreSQL")
        drawn = options.file(PICTURES, name_of(asked.seq, asked.at_ms))
        if isinstance(question, DrawPicture) and drawn.is_dir():
            return Reply(200, json_of({"folder": str(drawn)}))
        with closing(open_reader(options.store_url)) as database, database.reading() as connection:
            state = state_after(connection, Moments(options.file(STATES)), asked.seq, database.url)
        if isinstance(question, DrawPicture):
            return Reply(200, json_of({"folder": str(draw(state, asked.at_ms, store, options.file(PICTURES)))}))
    except Refusal as refusal:
        return Reply(refusal.status, json_of(refusal.body))
    except PhalanxError as error:
        return Reply(503, json_of(Refusal("unavailable", str(error)).body))
    pass_time(state, asked.at_ms)
    return answer(question, state)
