"""Benchmarks of saves and loads."""
