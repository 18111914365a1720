"""Readers of cluster files."""
