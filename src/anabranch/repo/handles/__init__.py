"""The parts of a repository's handle, by subject."""
