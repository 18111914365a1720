"""`python -m phalanx` is `phalanx`."""

from __future__ import annotations

from phalanx.cli.entry import main

if __name__ == "__main__":
    main()
