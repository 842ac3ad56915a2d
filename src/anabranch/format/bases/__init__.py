"""Base paths: files of a dataset in other locations, and how they are moved."""
