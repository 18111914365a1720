"""What a server adds to its cluster, and says of changes to it."""
