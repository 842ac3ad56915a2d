"""Doctor for one dataset: `doctor.py` is the entry, `inventory.py` reads all files, the others find and repair damage.

`findings.py` has the report, the findings and the way to repair, which the doctor of a repository uses as well.
"""
