"""The server: the loop that owns the State, the store beneath it, and the API beside it."""
