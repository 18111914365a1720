"""State, events, the cycle, and the plan that says why."""
