"""Preemption for a job: victims, moves, shrinking, and what is counted out before anything is tried."""
