"""Benchmarks of virtual clusters."""
