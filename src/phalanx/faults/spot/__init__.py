"""Spot capacity: what a job with a deadline costs where cheap nodes can be taken back, and when it is done."""
