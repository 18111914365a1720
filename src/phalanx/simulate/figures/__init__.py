"""What a run came to."""
