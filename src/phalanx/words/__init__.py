"""Reasons, changes and forecasts in sentences, for the command line and the server."""
