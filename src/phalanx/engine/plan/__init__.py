"""The plan while it is being built."""
