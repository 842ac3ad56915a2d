"""The files of a dataset: their names, manifests, and which files a version needs."""
