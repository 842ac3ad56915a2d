"""Base paths: files of a dataset in other places, and how they are moved."""
