"""Formats of trace files."""
