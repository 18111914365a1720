"""The process of one study: reads what is asked, runs it, and leaves the answer in its folder."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import msgspec

from phalanx.errors import PhalanxError
from phalanx.server.options import options_of
from phalanx.server.studies.asked import CAPACITY, Asked
from phalanx.server.studies.limits import MEMORY_BYTES_MAX, NICE, WRITTEN_BYTES_MAX
from phalanx.server.studies.shelf import ANSWER, ASKED, ERROR, write
from phalanx.server.studies.telling import Telling

ERROR_LENGTH_MAX = 2_000
RESERVE_BYTES = 8 << 20
"""Given back when all other memory is used up: to say so takes some."""

TOO_MUCH_MEMORY = f"it needs more than {MEMORY_BYTES_MAX >> 30} GiB of memory: take a part of the trace"


def main(handle: str, folder: str) -> int:
    """Runs the study in a folder, with the number of the file that holds the server's options."""
    options = options_of(handle)
    os.chdir(folder)
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN_BYTES_MAX, WRITTEN_BYTES_MAX))
    asked = msgspec.json.decode(Path(ASKED).read_bytes(), type=Asked)
    reserve = bytearray(RESERVE_BYTES)
    try:
        # What these import is counted by the bounds above, too.
        from phalanx.server.studies.compared import compared
        from phalanx.server.studies.planned import planned
        from phalanx.server.studies.sources import study_for

        telling = Telling()
        telling(0, 0, "reading the trace")
        study = study_for(asked, options)
        answer = planned(study, asked, telling) if asked.kind == CAPACITY else compared(study, asked, telling)
        write(Path(ANSWER), msgspec.json.encode(answer))
    except MemoryError:
        del reserve
        return _failed(TOO_MUCH_MEMORY)
    except (PhalanxError, ValueError, OverflowError) as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"the server could not write or read what it needs: {error.strerror}")
    return 0


def _failed(why: str) -> int:
    Path(ERROR).write_text(why[:ERROR_LENGTH_MAX], "utf-8", errors="replace")
    return 1


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    # Whatever is in memory is of no more use: taking it apart would only cost time.
    os._exit(code)
