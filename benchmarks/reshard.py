"""`python benchmarks/reshard.py [OPTIONS]` is `phalanx bench checkpoint --only reshard [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "checkpoint", "--only", "reshard", *sys.argv[1:]])
