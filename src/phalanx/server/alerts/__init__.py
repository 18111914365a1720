"""Alerts: rules that watch over GPUs, jobs and nodes, and tell or act when one comes true."""
