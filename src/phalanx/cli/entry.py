"""Where the interpreter enters the command line, and where it leaves it.

To look for garbage takes a seventh of a short verb's time. While modules are loaded there is none, and at the end of
the process all of it goes at once.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the verb of this process's arguments, and exits with its code."""
    gc.disable()
    from phalanx.cli.main import cli, run

    gc.freeze()
    gc.enable()
    code = run(cli)
    gc.freeze()
    sys.exit(code)
