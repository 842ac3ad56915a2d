"""What a handle does for the repository as a whole: check it, mend it, free its space."""

from anabranch.repo.handles.base import Handle

__all__ = ["HousekeepingHandle"]


class HousekeepingHandle(Handle):
    """Looks after everything that a repository keeps."""
