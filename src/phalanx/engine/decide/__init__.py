"""The cycle: from a State to a Plan."""
