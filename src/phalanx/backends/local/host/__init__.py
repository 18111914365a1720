"""This machine: its devices, its kernel, its users."""
