"""How processes beside a trainer tell what they are: by a variable that they are started with.

The scheduler reads it from outside. A writer may finish what it was ordered to write after its trainer has ended,
within the grace. A keeper stays while a task is restarted within its attempt.
"""

from __future__ import annotations

VARIABLE = "PHALANX_HELPER"
WRITER = "writer"
KEEPER = "keeper"
