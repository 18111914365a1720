"""`python benchmarks/placement.py [OPTIONS]` is `phalanx bench placement [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "placement", *sys.argv[1:]])
