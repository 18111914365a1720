"""Being told to save, and to end."""
