"""How an API server is asked and watched."""
