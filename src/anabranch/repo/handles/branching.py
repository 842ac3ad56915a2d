"""What a handle does with branches and tags, and the way back."""

from datetime import timedelta

from anabranch.errors import InvalidInputError
from anabranch.ids import BranchName, TableKey, TagName
from anabranch.repo.gc.purging import purge_branch
from anabranch.repo.handles.base import Handle
from anabranch.repo.log.arguments import checked_expiry, checked_mode, checked_text
from anabranch.repo.log.clocks import store_microseconds
from anabranch.repo.log.entries import BranchMode, LogEntry
from anabranch.repo.log.reserve import freeing_space
from anabranch.repo.refs import branches, protection, reflog, tags
from anabranch.repo.refs.branches import BranchInfo
from anabranch.repo.refs.live import view
from anabranch.repo.refs.resolve import Resolved
from anabranch.repo.refs.tags import TagInfo
from anabranch.repo.write import pull
from anabranch.repo.write.checks import Checks, checked_checks

__all__ = ["BranchingHandle"]


class BranchingHandle(Handle):
    """Makes, moves and deletes branches and tags."""

    def branch_create(self, name: str, *, description: str = "") -> BranchInfo:
        """Branch from the bound branch as it is now.

        >>> dev = repo.branch_create("dev", description="try a price")
        >>> dev.name, dev.mode.value, dev.parent
        ('dev', 'pinned', 'main')
        """
        return self.branch_create_from(self.branch, name, description=description)

    def branch_create_from(
        self,
        source: str,
        name: str,
        *,
        mode: str = BranchMode.PINNED,
        description: str = "",
        expires_in: timedelta | None = None,
    ) -> BranchInfo:
        """Branch from a branch, a tag, a commit or an old version; no table is touched.

        A pinned branch sees its source as of now. A live one, which only main can be the source of, sees main as it is
        at any time, but for the tables written on the branch.

        >>> repo.branch_create_from("main", "preview", mode="live").own_tables
        ()
        """
        target = BranchName.parse_new(name)
        made = branches.create_branch(
            self._records,
            target,
            source=self._resolve_published(source),
            mode=checked_mode(mode),
            description=checked_text(description, "description"),
            expires_at=None if expires_in is None else store_microseconds(self._context) + checked_expiry(expires_in),
        )
        self._seen[target] = made.version
        return made

    def branch_list(self, *, internal: bool = False) -> tuple[BranchInfo, ...]:
        """The branches; `internal` lists those of runs, too."""
        return branches.list_branches(self._records, internal=internal)

    def branch_get(self, name: str) -> BranchInfo:
        """A branch: where it began, its head, its mode, who made it when."""
        return BranchInfo.of(self._records.heads.get(BranchName.parse_public(name)))

    def branch_delete(self, name: str, *, purge: bool = False) -> None:
        """Delete a branch; it can be restored until garbage collection.

        To `purge` it frees its space at once: it cannot be restored, and whoever reads it now fails. A branch that was
        deleted before, or whose purge was cut off, can be purged as long as it takes space.

        >>> repo.branch_create("dev").name
        'dev'
        >>> repo.branch_delete("dev")
        >>> repo.branch_restore("dev").name
        'dev'
        """
        target = BranchName.parse_public(name)
        found = self._records.heads.find(target) if purge else None
        if found is not None and found.state.is_deleted:
            if not self._purge(found):
                self._records.heads.get(target)  # raises, because the branch is deleted
            return
        tombstone = freeing_space(self._context, lambda: branches.delete_branch(self._records, target))
        self._seen[target] = tombstone.number
        if purge:
            self._purge(tombstone)

    def _purge(self, tombstone: LogEntry) -> int:
        """Free the space of a deleted branch and return the number of bytes."""
        return freeing_space(self._context, lambda: purge_branch(self._records, tombstone))

    def branch_restore(self, name: str) -> BranchInfo:
        """Bring a deleted branch back as it was."""
        restored = branches.restore_branch(self._records, BranchName.parse_public(name))
        self._seen[BranchName(name)] = restored.version
        return restored

    def branch_pull(self, name: str, key: str) -> bool:
        """Let a table of a branch follow its source again; whether the branch had a copy of its own."""
        target = TableKey.parse(key)
        entry, was_local = pull.pull_table(self._records, BranchName.parse_public(name), target)
        if was_local:
            self._on_moved(entry)
        return was_local

    def branch_freeze(self, name: str) -> BranchInfo:
        """Make a live branch pinned at what it shows now."""
        entry = pull.freeze_branch(self._records, BranchName.parse_public(name))
        self._move_to(entry)
        return BranchInfo.of(entry)

    def branch_protect(self, name: str, *, checks: Checks = ()) -> BranchInfo:
        """Let a branch move by merges only, and by those only that pass the checks, until `branch_unprotect`.

        Nobody commits to it, resets, reverts, undoes or deletes it. The checks are SQL that must return no rows; they
        are kept with the branch, and asked of every merge into it, by whomever.
        """
        target = BranchName.parse_public(name)
        entry = self._records.heads.get(target)
        snapshot = self._snapshot(Resolved.of_entry(view(self._records, entry)))
        stored = []
        for label, check in checked_checks(checks):
            if not isinstance(check, str):
                raise InvalidInputError(
                    f"the check {label!r} is no SQL, and functions cannot be kept", hint="say it in SQL"
                )
            self._query(check, snapshot, None).close()  # refuses what is no query of these tables
            stored.append((label, check))
        return self._protect(target, protect=True, checks=tuple(stored))

    def branch_unprotect(self, name: str) -> BranchInfo:
        """Let a branch move freely again."""
        return self._protect(BranchName.parse_public(name), protect=False)

    def branch_drift(self, name: str) -> tuple[pull.TableDrift, ...]:
        """What main did since the branch took its copies, table by table."""
        return pull.branch_drift(self._records, BranchName.parse_public(name))

    def tag_create(self, name: str, *, ref: str | None = None, description: str = "") -> TagInfo:
        """Name the commit that a ref stands for; by default the newest of the bound branch.

        >>> tag = repo.tag_create("v1.0", description="the first orders")
        >>> repo.snapshot_of("v1.0").id == tag.commit_id
        True
        """
        commit = self._resolve_published(self._ref(ref)).get_commit()
        return tags.create_tag(
            self._records,
            TagName.parse_new(name),
            commit_id=commit.graph_commit_id,
            description=checked_text(description, "description"),
        )

    def tag_list(self) -> tuple[TagInfo, ...]:
        """The tags, by name."""
        return tags.list_tags(self._records)

    def tag_get(self, name: str) -> TagInfo:
        """A tag, and the commit it stands for."""
        return tags.get_tag(self._records, TagName.parse(name))

    def tag_delete(self, name: str) -> None:
        """Delete a tag; its commit stays."""
        tags.delete_tag(self._records, TagName.parse(name))

    def reset(self, branch: str, *, to: str) -> None:
        """Put a branch on what a ref stands for. Nothing is lost: the reflog has where it was."""
        name = BranchName.parse_public(branch)
        self._on_moved(reflog.reset_branch(self._records, name, self._resolve_published(to)))

    def undo(self, branch: str | None = None) -> None:
        """Take back the last movement of a branch, whatever it was, by a new entry of its log.

        Refused if others moved the branch since this handle did, or last looked at it.

        >>> with repo.transaction(message="Oops") as tx:
        ...     tx.delete("shop.orders", "id > 0")
        3
        >>> repo.undo()
        >>> repo.snapshot()["shop.orders"].count_rows()
        3
        """
        target = self._named(branch)
        self._on_moved(reflog.undo_last(self._records, target, seen=self._seen.get(target)))

    def _protect(self, name: BranchName, *, protect: bool, checks: tuple[tuple[str, str], ...] = ()) -> BranchInfo:
        entry, has_moved = protection.set_protection(self._records, name, protect=protect, checks=checks)
        if has_moved:
            self._move_to(entry)
        return BranchInfo.of(entry)
