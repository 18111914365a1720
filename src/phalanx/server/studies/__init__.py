"""Studies: runs in virtual time that users ask the server for, each in a process of its own, and what they came to."""
