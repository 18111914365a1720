"""Host memory that outlives a trainer."""
