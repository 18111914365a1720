"""Beside another scheduler: what it did as a State, and how long jobs waited for it and would have for phalanx."""
