"""Heartbeat files of processes that are at work, so that garbage collection and other writers wait for them."""
