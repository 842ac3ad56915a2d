"""Let time pass for those who give no more signs of life."""

import os
from pathlib import Path
from time import time

from anabranch.repo.repository import Repository


def expire(repo: Repository, *, after: float = -3600) -> None:
    """Let all leases be as old as if their processes had died an hour ago, or so many seconds after now."""
    for path in Path(repo.uri, "_leases").rglob("*"):
        os.utime(path, times=(time() + after, time() + after))
