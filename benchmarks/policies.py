"""`python benchmarks/policies.py [OPTIONS]` is `phalanx bench policies [OPTIONS]`."""

from __future__ import annotations

import sys

from phalanx.cli.main import main

if __name__ == "__main__":
    main(["bench", "policies", *sys.argv[1:]])
