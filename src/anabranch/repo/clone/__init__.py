"""Copies of whole repositories, and repositories that were moved."""
