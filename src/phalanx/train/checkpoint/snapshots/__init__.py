"""Copying a state to host memory and back."""
