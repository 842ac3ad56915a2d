"""Clones of a dataset, and the versions that they hold in their source."""
