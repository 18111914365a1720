"""Bringing steps back."""
