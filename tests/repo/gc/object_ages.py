"""Let time pass on local disk: every object becomes older, by the clock of the store."""

import os
from datetime import timedelta
from pathlib import Path

import anabranch as ab

DAY = timedelta(days=1)


def pass_time(repo: ab.Repository, by: timedelta = 2 * DAY) -> None:
    """Change a repository as if all of it, heartbeats included, had been written that much earlier."""
    for folder, _, names in os.walk(repo.uri):
        for name in names:
            path = Path(folder, name)
            modified = path.stat().st_mtime - by.total_seconds()
            os.utime(path, times=(modified, modified))
