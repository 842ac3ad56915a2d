"""Garbage collection: what no retained commit needs is found, marked and deleted."""
