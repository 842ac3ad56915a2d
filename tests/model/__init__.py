"""The reference model: a repository of plain dictionaries, to compare the real one with. Start with `model`."""
