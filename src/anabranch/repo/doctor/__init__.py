"""Doctor: check a whole repository and repair what can be rebuilt from other data.

`repository_doctor` is the entry point. A scan reads all logs and commits into an `inventory`, then checks the tables
that commits name. Each problem is a `Case`: a finding for the report and, if that is safe, a function that repairs it.
"""
