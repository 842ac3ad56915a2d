"""The records of a repository: logs, log entries, commit objects, and the settings to reach them.

A log is a folder of numbered entries that are put if absent and never changed. All layers above read and write the
repository through the values here. Start with `entries`, then `numbered_log` and `heads`.
"""
