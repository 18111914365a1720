"""What queues may have: limits, guarantees, what they borrow, and budgets over time."""
