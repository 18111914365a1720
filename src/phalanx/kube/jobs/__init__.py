"""Jobs that were formed of pods, and what became of these."""
