"""Nodes on which more fails than on others take no new work for a while."""
