"""Doctor for one dataset: `doctor.py` is the entry, `census.py` reads all files, and the others find and repair damage.

`findings.py` has the report, the findings and the way to repair, which the doctor of a repository uses as well.
"""
