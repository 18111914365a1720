"""Answers that stay open: event streams, logs and commands beside tasks, as long as their caller may have them."""
