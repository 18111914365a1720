"""Traces: readers of the formats of others and our own, a generator, and a description."""
