"""Accounts: who somebody is, and what they may do where."""
