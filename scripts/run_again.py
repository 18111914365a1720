"""run_again.py CACHE: runs failed tests of real processes once more, alone; fails where anything else had failed.

CACHE is the cache_dir of the pytest run that failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIVE = ("backends", "cli", "conformance", "integration", "kube", "page", "server", "train")
"""Folders of tests whose processes compete for the machine's cores with those of the tests beside them."""
MOST = 3
"""More failures than these are not by chance."""


def main() -> int:
    cache = Path(sys.argv[1])
    failed = sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    others = [each for each in failed if not each.startswith(tuple(f"tests/{folder}/" for folder in LIVE))]
    if others or len(failed) > MOST:
        return 1
    tell(f"== again, alone: {', '.join(failed)}")
    again = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", "-o", f"cache_dir={cache}", *failed])
    if again.returncode == 0:
        tell(f"== UNSTABLE, passed only when run again alone: {', '.join(failed)}")
    return again.returncode


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
