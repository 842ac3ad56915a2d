"""A plain model of a repository, strategies to exercise both, and the laws that hold between them; for tests only."""
