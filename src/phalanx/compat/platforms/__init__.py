"""The same job for other platforms: its file for each, what that cannot say, and its price."""
