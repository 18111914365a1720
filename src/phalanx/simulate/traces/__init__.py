"""Traces: readers of foreign formats and our own, a generator, and a description."""
