"""`python benchmarks/mesh.py [OPTIONS]` is `phalanx bench placement --only mesh [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "placement", "--only", "mesh", *sys.argv[1:]])
