"""The loop: the one process that owns the State, writes the store and speaks to the backend."""
