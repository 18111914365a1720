"""Benchmarks of placing gangs."""
