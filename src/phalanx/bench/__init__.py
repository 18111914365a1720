"""Benchmarks: what the product claims of itself, measured. `phalanx bench NAME` runs them."""
