"""The names of tables in Spark SQL: `bucket.table`, then a state to read, then a metadata table."""

from dataclasses import dataclass
from datetime import UTC, datetime

from anabranch.errors import InvalidInputError, InvalidNameError, TableNotFoundError
from anabranch.ids import TableKey
from anabranch.repo.runs.engine_access import EngineAccess
from anabranch.spark.gateway.requests import Request

__all__ = ["METADATA_TABLES", "TableName", "branch_of", "name_of", "new_name_of", "parse_name"]

METADATA_TABLES = ("history", "changes", "files", "refs", "nearest")
_BRANCH, _TAG, _COMMIT = "branch_", "tag_", "commit_"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A table, the state to read it at, and the metadata table that is meant, if any.

    `branch` is the branch to write to; None for a state that never changes.
    """

    key: TableKey
    ref: str
    branch: str | None
    metadata: str | None = None


def name_of(request: Request) -> TableName:
    """Return the table that a request names, with the state of VERSION or TIMESTAMP AS OF."""
    return parse_name(
        _full_parts(request), branch=request["branch"], version=request.get("version"), time=request.get("time")
    )


def new_name_of(request: Request) -> TableKey:
    """Return the table that a rename names behind RENAME TO."""
    return _parse_new_name(
        request["new_parts"], old=_full_parts(request), given=request["parts"], catalog=request["catalog"]
    )


def _full_parts(request: Request) -> list[str]:
    """Return the parts of a name with its bucket in front: after USE, `orders.history` may lack it.

    A table `history` of a bucket `orders` wins.
    """
    parts, namespace = request["parts"], request.get("namespace", [])
    if len(namespace) == 1 and len(parts) in (2, 3) and _is_selector(parts[-1]) and _is_selector(parts[1]):
        key = ".".join(parts[:2])
        if key not in EngineAccess(request.repository).published_snapshot_of(request["branch"]):
            return [*namespace, *parts]
    return list(parts)


def _is_selector(part: str) -> bool:
    """Return whether a part of a name may stand behind a table: a state, or a metadata table."""
    return part in METADATA_TABLES or part.startswith((_BRANCH, _TAG, _COMMIT))


def parse_name(parts: list[str], *, branch: str, version: str | None = None, time: int | None = None) -> TableName:
    """Parse `bucket.table[.branch_X | .tag_X | .commit_X][.history]`, with the state of VERSION or TIMESTAMP AS OF.

    `branch` is meant where the name has none. `time` is in microseconds since 1970.
    """
    if len(parts) < 2:
        raise TableNotFoundError(f"{'.'.join(parts)!r} has no bucket", hint="name it 'bucket.table'")
    key, rest = TableKey.parse(".".join(parts[:2])), parts[2:]
    metadata = rest.pop() if rest and rest[-1] in METADATA_TABLES else None
    selector = rest.pop(0) if rest else None
    # Not as TableNotFoundError: Spark would replace it by its own error, without the hint.
    if rest:
        raise InvalidNameError(f"'{'.'.join(parts)}' has too many parts", hint="name it 'bucket.table.branch_dev'")
    if selector is not None and not selector.startswith((_BRANCH, _TAG, _COMMIT)):
        raise InvalidNameError(
            f"'{'.'.join(parts)}' ends with {selector!r}",
            hint=f"write {key}.branch_{selector} for a branch, or end it with tag_NAME, commit_ID, "
            f"{' or '.join([', '.join(METADATA_TABLES[:-1]), METADATA_TABLES[-1]])}",
        )
    if selector is None or selector.startswith(_BRANCH):
        branch = branch if selector is None else selector.removeprefix(_BRANCH)
        return _on_branch(key, branch, metadata, version=version, time=time)
    if version is not None or time is not None:
        raise InvalidNameError(
            f"{selector!r} is one state already, so that it has no version", hint="leave VERSION AS OF out"
        )
    ref = selector.removeprefix(_TAG).removeprefix(_COMMIT)
    return TableName(key=key, ref=ref, branch=None, metadata=metadata)


def _parse_new_name(parts: list[str], *, old: list[str], given: list[str], catalog: str) -> TableKey:
    """Parse what follows RENAME TO: `table`, `bucket.table`, with the catalog in front, or with the same branch behind.

    Spark puts what stands before the last part of the old name, as it was given, in front of a new name of one part.
    `old` is the old name with its bucket.
    """
    is_short = len(parts) == len(given) and parts[:-1] == given[:-1]
    # Of `bucket.table.branch_dev` and the name `new`, Spark makes `bucket.table.new`: the new name stands where the
    # branch was, and is meant for the table.
    if is_short and len(old) > 2 and not parts[-1].startswith(_BRANCH):
        return TableKey.parse(f"{old[0]}.{parts[-1]}")
    if len(given) < len(old) and len(parts) == 2 and parts[1] == old[-1]:
        parts = [old[0], *parts]  # after USE, `table.branch_dev`
    # Spark removes the catalog from the old name only.
    if len(parts) > 2 and parts[0] == catalog:
        parts = parts[1:]
    # The branch may be repeated. Another branch stays in the name and is refused: a rename does not move a table.
    if len(parts) == 3 and parts[2] == (old[2] if len(old) > 2 else None):
        parts = parts[:2]
    if len(parts) != 2:
        raise InvalidInputError(
            f"a table cannot be renamed to '{'.'.join(parts)}'",
            hint="a rename stays in the catalog and on the branch: write RENAME TO bucket.table",
        )
    return TableKey.parse(".".join(parts))


def branch_of(name: TableName) -> str:
    """The branch to commit to; refuse a state that never changes, and a metadata table."""
    if name.branch is None or name.metadata is not None:
        raise InvalidInputError(
            f"'{name.key}' at '{name.ref}' is read-only", hint=f"name a table of a branch, as in {name.key}.branch_main"
        )
    return name.branch


def _on_branch(key: TableKey, branch: str, metadata: str | None, *, version: str | None, time: int | None) -> TableName:
    if time is not None:
        moment = datetime.fromtimestamp(time / 1_000_000, UTC)
        return TableName(key=key, ref=f"{branch}@{{{moment.isoformat()}}}", branch=None, metadata=metadata)
    if version is None:
        return TableName(key=key, ref=branch, branch=branch, metadata=metadata)
    # A number is a version of the branch, as in 'main@v7'; anything else is a ref by itself.
    ref = f"{branch}@v{version}" if version.isascii() and version.isdigit() else version
    return TableName(key=key, ref=ref, branch=None, metadata=metadata)
