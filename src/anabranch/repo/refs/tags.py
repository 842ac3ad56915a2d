"""Tags of the repository: names that do not move, each a numbered log, so that deleting and re-creating never cross."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from anabranch.display import row_of, to_datetime
from anabranch.errors import AnabranchError, BusyError, InvalidInputError, TagExistsError, TagNotFoundError
from anabranch.hints import closest, suggest
from anabranch.ids import BranchName, TagName
from anabranch.repo.log import codec, validation
from anabranch.repo.log.collected import require_uncollected
from anabranch.repo.log.numbered_log import ALL, TAGS, NamePage, NumberedLog, list_names
from anabranch.repo.log.repo_store import RepoStore
from anabranch.storage import documents, in_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class TagInfo:
    """A tag as it is now, or, if deleted, as it was."""

    name: str
    commit_id: str
    description: str
    created_at: int
    created_by: str | None
    number: int
    is_deleted: bool = False

    @property
    def created(self) -> datetime:
        """The time at which the tag was created, in UTC."""
        return to_datetime(self.created_at)

    def _repr_row_(self) -> Mapping[str, object]:
        return row_of(self, "tag=name commit=commit_id created created_by description")


def create_tag(repo_store: RepoStore, name: TagName, *, commit_id: str, description: str) -> TagInfo:
    """Create a tag.

    It checks for a branch of this name again after its put. A creation of that branch does the same for the tag, so of
    two concurrent creations at least one fails.
    """
    _refuse_name_of_branch(repo_store, name)
    before = _find_newest(repo_store, name)
    # A tag does not move, so that an existing one is never replaced: others may rely on what it names.
    if before is not None and not before.is_deleted:
        hint = "delete it first, or choose another name"
        raise TagExistsError(f"there is a tag '{name}' already, on {before.commit_id}", hint=hint)
    tag = TagInfo(
        name=str(name),
        commit_id=commit_id,
        description=description,
        created_at=repo_store.config.clock(),
        created_by=repo_store.config.actor,
        number=1 if before is None else before.number + 1,
    )
    if not _append(repo_store, tag):
        raise TagExistsError(f"another writer just created a tag '{name}'", hint="choose another name")
    try:
        _refuse_name_of_branch(repo_store, name)
        require_uncollected(repo_store.config, commit_id)
    except AnabranchError:
        # If the number is taken, another process has deleted the tag.
        _append(repo_store, replace(tag, number=tag.number + 1, is_deleted=True))
        raise
    return tag


def _refuse_name_of_branch(repo_store: RepoStore, name: TagName) -> None:
    if (branch := repo_store.heads.find(BranchName(str(name)))) is not None and not branch.state.is_deleted:
        raise InvalidInputError(f"'{name}' is the name of a branch", hint="choose another name for the tag")


def delete_tag(repo_store: RepoStore, name: TagName) -> None:
    tag = get_tag(repo_store, name)
    if not _append(repo_store, replace(tag, number=tag.number + 1, is_deleted=True)):
        raise BusyError(f"tag '{name}' was changed by another writer at the same time", hint="read it again and retry")


def find_tag(repo_store: RepoStore, name: TagName) -> TagInfo | None:
    tag = _find_newest(repo_store, name)
    return None if tag is None or tag.is_deleted else tag


def is_tag(repo_store: RepoStore, name: TagName) -> bool:
    """Whether there is such a tag; one request if there never was."""
    return _log(repo_store, name).find(1) is not None and find_tag(repo_store, name) is not None


def get_tag(repo_store: RepoStore, name: TagName) -> TagInfo:
    tag = find_tag(repo_store, name)
    if tag is None:
        hint = suggest(str(name), list_similar_tags(repo_store, str(name)), "list the tags with `tag_list()`")
        raise TagNotFoundError(f"there is no tag '{name}'", hint=hint)
    return tag


def list_tags(repo_store: RepoStore, page: NamePage = ALL) -> list[TagInfo]:
    """List the tags of a page by name. Only the tags that the page needs are read."""
    names = page.select(list_names(repo_store.config.store, TAGS))
    return list(page.cut(page.read(names, lambda some: _read_tags(repo_store, some))))


def list_tag_names(repo_store: RepoStore, page: NamePage) -> list[str]:
    """List the names of the tags of a page, deleted ones too. No tag is read."""
    return list(page.cut(page.select(list_names(repo_store.config.store, TAGS))))


def list_similar_tags(repo_store: RepoStore, name: str) -> list[str]:
    """List the tags whose names are most like a name, for a hint. It costs one list and reads three tags at most."""
    try:
        alike = closest(name, list_names(repo_store.config.store, TAGS), n=3)
        return [tag.name for tag in _read_tags(repo_store, alike)]
    except AnabranchError:
        return []  # the error that the hint is for matters more


def _read_tags(repo_store: RepoStore, names: Sequence[str]) -> tuple[TagInfo, ...]:
    found = in_parallel(lambda name: find_tag(repo_store, TagName(name)), names)
    return tuple(tag for tag in found if tag is not None)


def iter_tagged_since(repo_store: RepoStore, since: datetime) -> Iterator[TagInfo]:
    """Yield each tag that exists, or existed at some time since then, by the store's clock."""
    for folder in repo_store.config.store.list_folders(TAGS):
        log = NumberedLog(repo_store.config.store, folder)
        times = log.list_times()
        for number in sorted(times, reverse=True):
            tag = _decode_own(log, folder.rpartition("/")[2], number, log.store.get(log.path(number)))
            # A tombstone repeats the commit that was tagged until then.
            if not tag.is_deleted or times[number] >= since:
                yield tag
            # This entry was the newest at that time. What came before it was not reachable since.
            if times[number] < since:
                break


def _log(repo_store: RepoStore, name: TagName) -> NumberedLog:
    return NumberedLog(repo_store.config.store, f"{TAGS}/{name}")


def _find_newest(repo_store: RepoStore, name: TagName) -> TagInfo | None:
    log = _log(repo_store, name)
    found = log.find_head()
    return None if found is None else _decode_own(log, str(name), *found)


def _decode_own(log: NumberedLog, name: str, number: int, data: bytes) -> TagInfo:
    tag = decode_tag(data, path=log.path(number))
    codec.check_identity(log.path(number), (tag.name, tag.number), (name, number))
    return tag


def decode_tag(data: bytes, *, path: str) -> TagInfo:
    """One entry of a tag's log."""
    fields = documents.load(data, path=path)
    with documents.damage_named(path):
        return TagInfo(
            name=TagName.parse(fields["name"]).value,
            commit_id=validation.check_commit_id(fields["commit_id"]),
            description=validation.check_text(fields["description"], "description"),
            created_at=validation.check_time(fields["created_at"], "time"),
            created_by=validation.check_optional(validation.check_text, fields["created_by"], "actor"),
            number=validation.check_integer(fields["number"], "number"),
            is_deleted=fields["is_deleted"],
        )


def _append(repo_store: RepoStore, tag: TagInfo) -> bool:
    # Without the nonce, two entries with the same content would be taken for one that was put twice.
    data = documents.dump({**asdict(tag), "nonce": repo_store.config.new_id()})
    return _log(repo_store, TagName(tag.name)).append(tag.number, data)
