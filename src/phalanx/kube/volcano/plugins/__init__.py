"""Plugins of Volcano's Jobs: what pods of one job are told of one another."""
