"""The options of the data source: parse texts to checked values."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.errors import InvalidInputError
from anabranch.format.home import Home
from anabranch.format.splits import Selection
from anabranch.format.staging import VersionRef
from anabranch.ids import MAIN, TableKey
from anabranch.repo.io.prepared_table import LoadMode
from anabranch.repo.repository import Repository
from anabranch.repo.snapshot import Table
from anabranch.storage.uris import normalise_uri

FORMAT = "anabranch"

# Spark hides the value of every option whose name has 'secret' in it, wherever it shows a plan.
SECRET = "secret."  # noqa: S105 - the beginning of a name, no secret
_VERSION_REF = "version_ref"
# The start of a stream that reads only future changes.
LATEST = "latest"
# All names are in lower case, as Spark passes them on.
_LOCATION = frozenset({"repo", "path", "table"})
_READING = frozenset({"ref", "columns", "where", "bases", _VERSION_REF})
_WRITING = frozenset({"branch", "run", "upsert", "primarykey", "message", "metadata", "actor"})
_FEED = frozenset({"branch", "since", "until"})
_MOST_COMMITS = "maxcommitsperbatch"
# Options of a stream for Spark itself, which Spark passes on.
_STREAMING = frozenset({"checkpointlocation", "queryname"})

OpenRepository = Callable[..., Repository]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLocation:
    """A table, its repository, and the storage options to reach it."""

    repository: str
    key: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, known: frozenset[str]) -> "TableLocation":
        secrets = {name.removeprefix(SECRET): value for name, value in options.items() if name.startswith(SECRET)}
        _check_known(options, known | _LOCATION)
        if "repo" not in options:
            raise InvalidInputError("no repository is named", hint="give the option 'repo', a folder or a URI")
        # `load('bucket.table')` and `save('bucket.table')` arrive as the option 'path'.
        named = {options[name] for name in ("path", "table") if name in options}
        if len(named) != 1:
            problem = f"two tables are named, {' and '.join(sorted(named))}" if named else "no table is named"
            raise InvalidInputError(problem, hint="load or save 'bucket.table'")
        key = str(TableKey.parse(named.pop()))
        return cls(repository=options["repo"], key=key, storage_options=secrets)

    def open(self, open_repository: OpenRepository, *, actor: str | None = None) -> Repository:
        return open_repository(self.repository, actor=actor, storage_options=self.storage_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    location: TableLocation
    ref: str = MAIN
    selection: Selection = field(default_factory=Selection)
    version_ref: VersionRef | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ReadOptions":
        location = TableLocation.parse(options, known=_READING)
        columns = _names(options.get("columns"))
        selection = Selection(columns=columns or None, filter=options.get("where"), bases=_names(options.get("bases")))
        version_ref = (
            version_ref_from_json(json.loads(options[_VERSION_REF]), location.storage_options)
            if _VERSION_REF in options
            else None
        )
        return cls(location=location, ref=options.get("ref", MAIN), selection=selection, version_ref=version_ref)


def asks_for_changes(options: Mapping[str, str]) -> bool:
    """Return whether options request the changes of a table, and not its rows."""
    return not _FEED.isdisjoint(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """The changes to read: those after `since` and up to `until`, or without an end in a stream."""

    location: TableLocation
    branch: str = MAIN
    since: str | None = None
    until: str | None = None
    most_commits: int = 100

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "FeedOptions":
        location = TableLocation.parse(options, known=_FEED | {_MOST_COMMITS})
        if {"branch", "until"} <= options.keys():
            raise InvalidInputError("both 'branch' and 'until' give the end of the changes", hint="leave one out")
        most = options.get(_MOST_COMMITS, "100")
        # `isdigit` alone also accepts characters such as '²', for which `int` raises an error.
        if not most.isascii() or not most.isdigit() or not 0 < int(most) < 1 << 31:
            raise InvalidInputError(
                f"the option 'maxCommitsPerBatch' is {most!r}", hint="give a number of commits, 1 or more"
            )
        return cls(
            location=location,
            branch=options.get("branch", MAIN),
            since=options.get("since"),
            until=options.get("until"),
            most_commits=int(most),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    location: TableLocation
    branch: str = MAIN
    run: str | None = None
    mode: LoadMode = LoadMode.APPEND
    primary_key: tuple[str, ...] = ()
    message: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    actor: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_overwrite: bool) -> "WriteOptions":
        location = TableLocation.parse(options, known=_WRITING)
        is_upsert = _flag("upsert", options.get("upsert", "false"))
        if is_overwrite and is_upsert:
            raise InvalidInputError(
                "an upsert keeps the other rows", hint="use the mode 'append', or the output mode 'append' of a stream"
            )
        return cls(
            location=location,
            branch=options.get("branch", MAIN),
            run=options.get("run"),
            mode=LoadMode.OVERWRITE if is_overwrite else LoadMode.UPSERT if is_upsert else LoadMode.APPEND,
            primary_key=_names(options.get("primarykey")),
            message=options.get("message", f"Write '{location.key}' with Spark"),
            metadata=_json_object("metadata", options.get("metadata", "{}")),
            actor=options.get("actor"),
        )

    @classmethod
    def parse_stream(cls, options: Mapping[str, str], *, is_overwrite: bool) -> "WriteOptions":
        if "run" in options:
            raise InvalidInputError("a stream does not write into a run", hint="give the option 'branch' instead")
        given = {name: value for name, value in options.items() if name not in _STREAMING}
        return cls.parse({"message": "", **given}, is_overwrite=is_overwrite)

    def open(self, open_repository: OpenRepository) -> Repository:
        return self.location.open(open_repository, actor=self.actor)


def with_lent_options(options: Mapping[str, str], lent: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Add the storage options that were lent to the session for a repository. Given ones have precedence."""
    repository = options.get("repo")
    found = lent.get(normalise_uri(repository), {}) if repository and lent else {}
    return {**{f"{SECRET}{name}": value for name, value in found.items()}, **options}


def pinned_options(repository: Repository, table: Table) -> dict[str, str]:
    """Return the options with which Spark reads a table at exactly the state of a snapshot."""
    version_ref = version_ref_to_json(table.version_ref)
    return {"repo": repository.uri, "path": table.key, _VERSION_REF: json.dumps(version_ref)}


def version_ref_to_json(version_ref: VersionRef) -> dict[str, Any]:
    home = version_ref.home
    return {
        "root": home.root,
        "branch": home.branch,
        # As text: staged versions are larger than the integers that every JSON reader keeps exact.
        "version": str(version_ref.version),
        "recorded_root": home.recorded_root,
    }


def version_ref_from_json(found: Mapping[str, Any], storage_options: Mapping[str, str]) -> VersionRef:
    home = Home.at(found["root"], storage_options).on(found["branch"])
    home = replace(home, recorded_root=found["recorded_root"])
    return VersionRef(home=home, version=int(found["version"]))


def _check_known(options: Mapping[str, str], names: frozenset[str]) -> None:
    for name in options:
        if name not in names and not name.startswith(SECRET):
            shown = ", ".join(sorted(names - {_VERSION_REF}))
            raise InvalidInputError(
                f"the option {name!r} is not known here",
                hint=f"the options are {shown}, and {SECRET}NAME for each storage option",
            )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidInputError(f"the option {name!r} is {text!r}", hint="use true or false")
    return text.lower() == "true"


def _json_object(name: str, text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidInputError(f"the option {name!r} is {text!r}", hint='write a JSON object of text: {"ticket": "7"}')
    return found
