"""Devices and times that are reserved for pending jobs, and quota that is held for them."""
