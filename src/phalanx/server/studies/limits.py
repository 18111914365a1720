"""How much of a server studies may take."""

from __future__ import annotations

UPLOAD_BYTES_MAX = 256 << 20
LINES_MAX = 1_000_000
LINE_BYTES_MAX = 16 << 20
"""Only a journal has long lines, such as that of a cluster of 10,000 nodes."""

UPLOADS_OF_ONE = 4
UPLOADS_BYTES_MAX = 2 << 30
"""Uploads of all users together."""

UPLOAD_KEPT_MS = 86_400_000
STUDY_KEPT_MS = 7 * 86_400_000
STUDIES_OF_ONE = 20
"""Studies of one user that are kept. The oldest that has ended makes way for another."""

UNDER_WAY_OF_ONE = 2
"""Studies of one user that are queued or run."""

AT_ONCE = 2
"""Studies that run at once, of all users together; of one user, one."""

NICE = 10
MEMORY_BYTES_MAX = 2 << 30
TIME_S_MAX = 3_600
WRITTEN_BYTES_MAX = 64 << 20
"""How large a file of a study may become: its report, with charts, has a few megabytes."""
