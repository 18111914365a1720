"""Readers of job files."""
