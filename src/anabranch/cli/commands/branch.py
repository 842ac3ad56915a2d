"""`anabranch branch`, `switch` and `tag`: the branches of a repository, and fixed names for commits."""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from anabranch.cli.command import WRITES, Here, add_group, command, group, remembered
from anabranch.cli.merging import CheckFiles, read_checks
from anabranch.cli.options import REF_FORMS, ListPage, RefOption, TableName, argument, flag, option, parse_duration
from anabranch.cli.output import Answer, document_of
from anabranch.cli.texts import Table, commit_line, count, mode_text, size_text, snapshot_size
from anabranch.config import remember
from anabranch.display import short_id
from anabranch.errors import BranchNotFoundError, InvalidInputError
from anabranch.ids import MAIN
from anabranch.repo.log.entries import BranchMode

if TYPE_CHECKING:
    from anabranch.repo.refs.branches import BranchInfo

app = group()
branches = add_group(
    app,
    "branch",
    help="List, create, rename, delete, restore and protect branches. Without a command, list them.",
    otherwise="anabranch branch create",
)
tags = add_group(app, "tag", help="List, create, show and delete tags.", otherwise="anabranch tag create")

Name = Annotated[str, argument("BRANCH", "Name of the branch.")]
TagName = Annotated[str, argument("TAG", "Name of the tag.")]


@command(branches, "create", "branch create dev", "branch create fix --from main~3 --expires-in 30d", on=WRITES)
def create(
    here: Here,
    name: Name,
    source: str | None = option("--from", "REF", f"Start of the branch. {REF_FORMS}"),
    live: bool = flag(
        "--live",
        "Create a live branch. It shows every new commit of main, except in tables that were changed on the branch."
        " Its start is always main.",
    ),
    expires_in: str | None = option(
        "--expires-in",
        "TIME",
        "Time until the branch expires, such as 30d or 12h. 'anabranch gc' deletes expired branches.",
    ),
    description: str = option("--description", "TEXT", "Description of the branch.", default="", show_default=False),
) -> Answer:
    """Create a branch. No data is copied.

    The new branch does not show later commits of the branch that it was created from. With --live, the new branch is
    created from main, and shows later commits of main. You stay on the current branch. To change to the new branch, use
    'anabranch switch'. 'anabranch switch -c' creates a branch and changes to it.
    """
    lifetime = None if expires_in is None else parse_duration(expires_in, option="--expires-in")
    branch = create_branch(here, name, source=source, live=live, description=description, expires_in=lifetime)
    sentence = f"created branch {branch.name} at {_origin(branch)}"
    if live:
        sentence = f"created live branch {branch.name}, which follows main, now at {short_id(branch.head_commit_id)}"
    return Answer(branch, sentence)


@command(branches, "list", "branch list", "branch list --prefix team/ --limit 50 --json")
def list_(
    here: Here,
    internal: bool = flag("--internal", "Also list the hidden branches of runs."),
    deleted: bool = flag("--deleted", "List only deleted branches."),
    *,
    page: ListPage,
) -> Answer:
    """List branches. A star marks the current branch."""
    found = here.repository.branch_list(internal=internal, deleted=deleted, **vars(page))
    rows = []
    for one in found:
        star, head = "*" if one.name == here.repository.branch else "", short_id(one.head_commit_id)
        rows.append((star, one.name, mode_text(one), head, one.parent, one.created, one.created_by, one.description))
    columns = ("", "branch", "mode", "head", "from", "created (UTC)", "by", "description")
    return Answer({"current": here.repository.branch, "branches": found}, tables=[Table(columns, rows)])


@command(branches, "show", "branch show dev")
def show(here: Here, name: Name) -> Answer:
    """Show a branch: its start, newest commit, tables and rows."""
    branch, snapshot = here.repository.branch_get(name), here.repository.snapshot_of(name)
    rows = (
        ("branch", branch.name),
        ("description", branch.description or None),
        ("mode", mode_text(branch)),
        ("from", _origin(branch)),
        ("created (UTC)", branch.created),
        ("by", branch.created_by),
        ("expires (UTC)", branch.expires),
        ("head", short_id(branch.head_commit_id)),
        ("protection", _protection(branch)),
        ("version", str(branch.version)),
        ("tables", size_text(snapshot)),
    )
    return Answer({**document_of(branch), **snapshot_size(snapshot)}, tables=[Table(("", ""), rows)])


@command(branches, "rename", "branch rename dev prices", on=WRITES)
def rename(here: Here, old: Name, new: str = argument("NEW", "New name of the branch.")) -> Answer:
    """Rename a branch.

    Only the name changes: the tables, the history, the expiry time and the child branches stay. If the branch is the
    current branch of this folder, the new name becomes the current branch. You cannot rename main, a protected branch,
    or a branch with an active run. You can use the old name for another branch.
    """
    branch = here.repository.branch_rename(old, new)
    sentences = [f"renamed branch {old} to {branch.name}; 'anabranch reflog {old}' lists its changes up to now"]
    memory = here.settings.memory
    if memory is not None and (memory.repository, memory.branch) == (here.repository.uri, old):
        now = remember(repository=here.repository.uri, branch=branch.name, memory=memory)
        sentences.append(f"the current branch of {now.file.parent} is {branch.name} now")
    return Answer({**document_of(branch), "renamed_from": old}, *sentences)


@command(branches, "delete", "branch delete dev", "branch delete dev --purge", on=WRITES)
def delete(
    here: Here,
    name: Name,
    purge: bool = flag("--purge", "Also delete the data of the branch now. Then you cannot restore the branch."),
) -> Answer:
    """Delete a branch.

    You cannot delete a branch that has child branches or active runs. 'anabranch branch restore' restores a deleted
    branch, until 'anabranch gc' deletes its data.
    """
    try:
        here.repository.branch_delete(name, purge=purge)
    except BranchNotFoundError as err:
        # Only after the error: a tag of this name is a likely reason, but a deletion that works needs no list of tags.
        if not any(tag.name == name for tag in here.repository.tag_list(prefix=name)):
            raise
        raise BranchNotFoundError(err.problem, hint=f"it is a tag: use 'anabranch tag delete {name}'") from err
    undo = "its space is free" if purge else f"'anabranch branch restore {name}' brings it back"
    sentences = [f"deleted branch {name}; {undo}"]
    if name == here.repository.branch:
        sentences.append("note: it was the current branch; choose another with 'anabranch switch BRANCH'")
    return Answer({"deleted": name}, *sentences)


@command(branches, "restore", "branch restore dev", on=WRITES)
def restore(here: Here, name: Name) -> Answer:
    """Restore a deleted branch."""
    branch = here.repository.branch_restore(name)
    return Answer(branch, f"restored branch {branch.name} at {short_id(branch.head_commit_id)}")


@command(branches, "pull", "branch pull dev shop.orders", on=WRITES)
def pull(here: Here, name: Name, key: TableName) -> Answer:
    """Discard what a branch changed in a table.

    On a live branch, the table follows main again. On any other branch, the table gets the current state of the table
    on the parent branch. This makes a commit, so the old state stays in the history of the branch.
    """
    has_moved = here.repository.branch_pull(name, key)
    branch = here.repository.branch_get(name)
    state = "follows main again" if branch.mode is BranchMode.LIVE else f"is as on {branch.parent} now"
    document = {"branch": name, "table": key, "pulled": has_moved, "head_commit_id": branch.head_commit_id}
    return Answer(document, f"{key} on {name} {state if has_moved else 'has nothing to pull'}")


@command(branches, "freeze", "branch freeze dev", on=WRITES)
def freeze(here: Here, name: Name) -> Answer:
    """Turn a live branch into a pinned branch.

    The branch keeps the state that it shows now, and no longer follows main.
    """
    branch = here.repository.branch_freeze(name)
    return Answer(branch, f"froze branch {branch.name} at {short_id(branch.head_commit_id)}")


@command(branches, "protect", "branch protect main --check totals.sql", "branch protect main --off", on=WRITES)
def protect(
    here: Here, name: Name, check: CheckFiles = None, off: bool = flag("--off", "Remove the protection and its checks.")
) -> Answer:
    """Refuse changes to a branch, except merges that pass its checks.

    The checks are stored with the branch, and run before every merge into the branch. To replace the checks, protect
    the branch again.
    """
    if off and check:
        raise InvalidInputError("--off removes the checks, and --check adds some", hint="leave one of them out")
    checks = read_checks(check)
    branch = here.repository.branch_unprotect(name) if off else here.repository.branch_protect(name, checks=checks)
    return Answer(branch, f"branch {branch.name} is {_protection(branch)}")


@command(branches, "drift", "branch drift dev")
def drift(here: Here, name: Name) -> Answer:
    """List tables changed on a branch, and whether main changed them too."""
    found = here.repository.branch_drift(name)
    rows = [(one.table, one.has_drifted, one.branch_rows, one.main_rows) for one in found]
    columns = ("table", "changed on main", f"rows on {name}", "rows on main")
    shown = Table(columns, rows, empty=f"no tables were changed on {name}")
    return Answer({"branch": name, "tables": found}, tables=[shown])


def create_branch(
    here: Here, name: str, *, source: str | None, live: bool, description: str = "", expires_in: timedelta | None = None
) -> "BranchInfo":
    """Create a branch from a ref, by default from the current branch. A live branch follows main."""
    return here.repository.branch_create(
        name,
        source or (MAIN if live else here.current().name),
        mode=BranchMode.LIVE if live else BranchMode.PINNED,
        description=description,
        expires_in=expires_in,
    )


def _protection(branch: "BranchInfo") -> str:
    checks = f", with {count(len(branch.checks), 'check')}" if branch.checks else ""
    return f"protected{checks}" if branch.is_protected else "not protected"


def _origin(branch: "BranchInfo") -> str | None:
    if branch.parent_commit_id is None:
        return None
    commit = short_id(branch.parent_commit_id)
    return commit if branch.parent is None else f"{commit} of {branch.parent}"


@command(app, "switch", "switch dev", "switch -c fix --from v1.0", "switch main --repo lake", on=WRITES)
def switch(
    here: Here,
    branch: Name,
    create: bool = flag("--create -c", "Create the branch first."),
    source: str | None = option("--from", "REF", "With --create: start of the branch (default: the current branch)."),
    live: bool = flag("--live", "With --create: create a live branch. It follows main. Its start is always main."),
) -> Answer:
    """Change the current branch of this folder.

    Later commands in this folder, or below it, use this branch. With --repo, they also use that repository.
    """
    if not create and (source is not None or live):
        option = "--live" if source is None else "--from"
        raise InvalidInputError(f"{option} is for a new branch", hint="add --create, or leave it out")
    if create:
        create_branch(here, branch, source=source, live=live)
    if not create and re.search("[~^@]", branch):
        raise InvalidInputError(
            f"{branch!r} is an older state, not a branch",
            hint=f"make a branch from it with 'anabranch switch -c NAME --from {branch}', or read it with"
            f" --ref {branch}",
        )
    # Before the folder remembers it: a misspelt branch must not become the current one.
    info = here.repository.branch_get(branch)
    memory = remember(repository=here.repository.uri, branch=info.name, memory=here.settings.memory)
    new = "new branch" if create else "branch"
    sentence = f"on {new} {info.name} at {short_id(info.head_commit_id)}, in {here.repository.uri}"
    return remembered(memory, sentence, commit_id=info.head_commit_id, before=here.settings.memory)


@command(tags, "create", "tag create v1.0", "tag create before-cleanup --ref main~1", on=WRITES)
def create_tag(
    here: Here,
    name: TagName,
    ref: RefOption = None,
    description: str = option("--description", "TEXT", "Description of the tag.", default="", show_default=False),
) -> Answer:
    """Create a tag: a fixed name for a commit."""
    tag = here.repository.tag_create(name, ref=ref or here.current().name, description=description)
    return Answer(tag, f"created tag {tag.name} at {short_id(tag.commit_id)}")


@command(tags, "list", "tag list", "tag list --prefix v1. --json")
def list_tags(here: Here, page: ListPage) -> Answer:
    """List tags."""
    found = here.repository.tag_list(**vars(page))
    rows = [(tag.name, short_id(tag.commit_id), tag.created, tag.created_by, tag.description) for tag in found]
    shown = Table(("tag", "commit", "created (UTC)", "by", "description"), rows, empty="no tags")
    return Answer({"tags": found}, tables=[shown])


@command(tags, "show", "tag show v1.0")
def show_tag(here: Here, name: TagName) -> Answer:
    """Show the commit of a tag, and its number of tables and rows."""
    tag = here.repository.tag_get(name)
    snapshot = here.repository.snapshot_of(tag.commit_id)
    rows = (
        ("tag", tag.name),
        ("description", tag.description or None),
        ("commit", commit_line(snapshot.commit)),
        ("created (UTC)", tag.created),
        ("by", tag.created_by),
        ("tables", size_text(snapshot)),
    )
    return Answer({**document_of(tag), **snapshot_size(snapshot)}, tables=[Table(("", ""), rows)])


@command(tags, "delete", "tag delete v1.0", on=WRITES)
def delete_tag(here: Here, name: TagName) -> Answer:
    """Delete a tag. The commit of the tag is not deleted."""
    tag = here.repository.tag_get(name)
    here.repository.tag_delete(name)
    document = {"deleted": name, "commit_id": tag.commit_id}
    return Answer(document, f"deleted tag {name}, which named {short_id(tag.commit_id)}")
