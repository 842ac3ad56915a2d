"""What a handle does for the repository as a whole: check it, mend it, free its space."""

from anabranch.repo.clones import CloneInfo, Clones
from anabranch.repo.handles.base import Handle

__all__ = ["HousekeepingHandle"]


class HousekeepingHandle(Handle):
    """Looks after everything that a repository keeps."""

    def clone_list(self) -> list[CloneInfo]:
        """The clones that were made of this repository, oldest first; registered ones keep what they read."""
        return list(Clones(self._context).list())

    def clone_release(self, clone_id: str) -> CloneInfo:
        """Stop keeping what a clone reads: for one that is gone, or that was cut off while it was made."""
        return Clones(self._context).release(clone_id)
