"""Let leases expire whose holders have stopped."""

import os
from pathlib import Path
from time import time

from anabranch.repo.repository import Repository


def expire(repo: Repository, *, after: float = -3600, branch: str = "") -> None:
    """Let all leases, or those on a branch, be as old as if their holders died an hour ago, or so long after now."""
    for path in Path(repo.uri, "_leases", branch).rglob("*"):
        os.utime(path, times=(time() + after, time() + after))
