"""What jobs do in virtual time, and how fast."""
