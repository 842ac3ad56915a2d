"""The branches and tags of a dataset, and its versions."""
