"""The fixed APIs of others, answered by the same engine."""
