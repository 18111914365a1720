"""Which pods start together."""
