"""Accounts: which user a caller is, and what it may do where."""
