"""Jobs that lost hardware go on where they were, with spares in place of what they lost."""
