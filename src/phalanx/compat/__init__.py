"""Foreign fixed APIs, answered by the same engine."""
