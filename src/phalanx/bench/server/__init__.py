"""Benchmarks of a live server."""
