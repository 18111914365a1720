"""`python benchmarks/cells.py [OPTIONS]` is `phalanx bench cells [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "cells", *sys.argv[1:]])
