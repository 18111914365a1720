"""`python benchmarks/simulate.py [OPTIONS]` is `phalanx bench simulate [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "simulate", *sys.argv[1:]])
