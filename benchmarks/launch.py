"""`python benchmarks/launch.py [OPTIONS]` is `phalanx bench launch [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "launch", *sys.argv[1:]])
