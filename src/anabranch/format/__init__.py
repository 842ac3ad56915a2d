"""One Lance dataset, by the specification: the only importer of lance."""
