"""Doctor for one dataset: `dataset_doctor` is the entry, `inventory` reads the files, `branches` checks refs and trees.

`findings` has the report, the findings and the repairs. The doctor of a repository uses it as well.
"""
