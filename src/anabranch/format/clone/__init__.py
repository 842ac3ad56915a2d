"""Clones of a dataset, and what they hold of their source."""
