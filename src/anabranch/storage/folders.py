"""Folders of a local store. Object stores have none: a folder there is gone with its last object."""

import os
from contextlib import suppress
from pathlib import Path

from anabranch.storage.local_files import forget_folders
from anabranch.storage.uris import is_local

__all__ = ["remove_empty_folders"]


def remove_empty_folders(root: str, folder: str) -> None:
    """Remove a local folder below a root as far as it is empty, and then its parents, but not the root itself.

    A folder with anything in it stays, and links are not followed: `rmdir` refuses both.
    """
    if not is_local(root):
        return
    base = Path(root)
    # Innermost first, so that a folder that held only empty folders is empty itself.
    inside = [Path(path) for path, _, _ in os.walk(base / folder, topdown=False)]
    above = [base.joinpath(*Path(folder).parts[:depth]) for depth in range(len(Path(folder).parts) - 1, 0, -1)]
    for path in [*inside, *above]:
        with suppress(OSError):
            path.rmdir()
    forget_folders()
