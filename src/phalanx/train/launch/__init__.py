"""The launcher inside a job: agents, one a node, that start the ranks of a training and start them again.

`epoch`, `replica`, `coordinator`, `cause`, `budget` and `stragglers` hold the rules and do no I/O; the other modules
are the processes around them.
"""

from __future__ import annotations
