"""Benchmarks of virtual time."""
