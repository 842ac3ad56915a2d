"""The files that a repository's tables need, found by plain Lance from the versions that commits name."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import lance

import anabranch as ab
from anabranch import testing
from anabranch.errors import CollectedError
from anabranch.format.home import Home
from anabranch.repo.log.entries import TableEntry

_MANIFEST = re.compile(r"(?P<staged>d?)(?P<number>\d+)\.manifest")
_OWN_HOME = re.compile(r".+/[0-9A-Z]{26}")
_NEWEST = (1 << 64) - 1
_STAGED = 1 << 63

Location = tuple[str | None, int]


def list_commit_ids(repo: ab.Repository) -> list[str]:
    """Every commit that some log ever recorded, runs' too."""
    repo_store = testing.repo_store_of(repo)
    found: set[str] = set()
    for branch in repo_store.heads.names.list_all():
        newest = repo_store.heads.find(branch)
        assert newest is not None
        for number in range(1, newest.number + 1):
            head = repo_store.heads.get_numbered(branch, number).head
            found.update(commit.graph_commit_id for commit in repo_store.commits.iter_history(head))
    return sorted(found)


def is_collected(repo: ab.Repository, commit_id: str) -> bool:
    return testing.repo_store_of(repo).commits.get(commit_id).collected_at is not None


def list_readable(repo: ab.Repository) -> list[str]:
    return [commit_id for commit_id in list_commit_ids(repo) if not is_collected(repo, commit_id)]


def find_unreachable(repo: ab.Repository) -> dict[str, int]:
    """The files of tables, and their bytes, that no commit which can be read needs; local disk only."""
    entries: dict[str, set[TableEntry]] = {}
    for commit_id in list_readable(repo):
        record = testing.repo_store_of(repo).commits.get(commit_id)
        for entry in testing.repo_store_of(repo).commits.tables_of(record).values():
            entries.setdefault(entry.dataset, set()).add(entry)
    heads = _list_heads(repo)
    found: dict[str, int] = {}
    for dataset in _list_datasets(repo):
        folder = Path(repo.uri, "tables", dataset)
        needed = _Dataset(folder).find_needed(entries.get(dataset, set()), heads.get(dataset, set()))
        for path in _list_files(folder):
            if str(path.relative_to(folder)) not in needed:
                found[str(path.relative_to(repo.uri))] = path.stat().st_size
    return found


def _list_heads(repo: ab.Repository) -> dict[str, set[TableEntry]]:
    """The tables that the next commit of some branch or run continues from, in the same home."""
    found: dict[str, set[TableEntry]] = {}
    for head in testing.repo_store_of(repo).heads.list(internal=True):
        branch = str(head.home_branch)
        for entry in () if head.state.is_deleted else testing.repo_store_of(repo).commits.tables_of(head.head).values():
            if branch == ("main" if entry.home is None else entry.home.rpartition("/")[0]):
                found.setdefault(entry.dataset, set()).add(entry)
    return found


def _list_datasets(repo: ab.Repository) -> Iterator[str]:
    tables = Path(repo.uri, "tables")
    return (str(path.relative_to(tables)) for path in tables.glob("*/*.lance"))


def _list_files(folder: Path) -> Iterator[Path]:
    return (Path(where, name) for where, _, names in os.walk(folder) for name in names)


class _Dataset:
    """One Lance dataset on local disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths = sorted(str(path.relative_to(folder)) for path in _list_files(folder))
        self._manifests = dict(self._iter_manifests())

    def _iter_manifests(self) -> Iterator[tuple[Location, str]]:
        for path in self._paths:
            home, _, name = path.rpartition("_versions/")
            found = _MANIFEST.fullmatch(name)
            if found is not None:
                number = int(found["number"])
                version = number if found["staged"] or number < _STAGED else _NEWEST - number
                yield (home.removeprefix("tree/").rstrip("/") or None, version), path

    def find_needed(self, entries: set[TableEntry], heads: set[TableEntry]) -> set[str]:
        external = {home for home, _ in self._manifests if home is not None and _OWN_HOME.fullmatch(home) is None}
        tagged = self._tagged()
        homes = self._with_parents({entry.home for entry in entries} | external | {home for home, _ in tagged})
        wanted = {(entry.home, entry.version) for entry in entries}
        locations = wanted | tagged
        missing = locations - self._manifests.keys()
        assert not missing, f"{self._folder} has lost {missing}"
        locations |= {location for location in self._manifests if location[0] in external}
        for home in homes:
            locations.update(self._ordinary(home, heads))
        steps = [step for entry in entries if not entry.primary_key for step in self._steps_to(entry, wanted)]
        needed = {f"_refs/branches/{home.replace('/', '%2F')}.json" for home in homes if home is not None}
        for location in locations:
            needed |= self._files_of(location)
        for step in steps:
            needed |= self._own_files_of(step)
        names = {path.rpartition("/")[2] for path in needed}
        # Names are made by chance, so that a name identifies a file in any folder; an index is a folder.
        return {
            path
            for path in self._paths
            if path in needed
            or ("/data/" in f"/{path}" and path.rpartition("/")[2] in names)
            or ("_deletions/" in path and path.rpartition("/")[2] in names)
            or ("_indices/" in path and path.partition("_indices/")[2].split("/")[0] in names)
            or path.startswith("_refs/tags/")
            or path.endswith("latest_version_hint.json")
        }

    def _tagged(self) -> set[Location]:
        if not any(path.startswith("_refs/tags/") for path in self._paths):
            return set()
        tags = lance.dataset(str(self._folder)).tags.list()
        return {(tag["branch"], tag["version"]) for tag in tags.values()}

    def _with_parents(self, homes: set[str | None]) -> set[str | None]:
        if homes - {None}:
            listed = lance.dataset(str(self._folder)).branches.list()
            parents = {name: about["parent_branch"] for name, about in listed.items()}
            for home in list(homes):
                while home is not None:
                    home = parents[home]
                    homes.add(home)
        return homes

    def _ordinary(self, home: str | None, heads: set[TableEntry]) -> set[Location]:
        """The newest version of a home, and those among which the next writer looks for external writes."""
        versions = [version for where, version in self._manifests if where == home and version < _STAGED]
        since = min([entry.head for entry in heads if entry.home == home] + [max(versions)])
        return {(home, version) for version in versions if version >= since}

    def _steps_to(self, entry: TableEntry, wanted: set[Location]) -> list[Location]:
        """The steps back from a table without a key to another state that is kept, if there is a way."""
        steps: list[Location] = []
        here = self._step_back((entry.home, entry.version))
        while here is not None and here not in wanted:
            steps.append(here)
            here = self._step_back(here)
        return [] if here is None else steps

    def _step_back(self, location: Location) -> Location | None:
        try:
            step = self._open(location).read_transaction(location[1])
        except (TypeError, ValueError):
            return None
        match None if step is None else step.operation:
            case lance.LanceOperation.Clone() as made:
                found = (made.ref_name, made.ref_version)
            case lance.LanceOperation.Restore() as made:
                found = (location[0], made.version)
            case _:
                found = (location[0], 0 if step is None else step.read_version)
        return found if found in self._manifests else None

    def _open(self, location: Location) -> lance.LanceDataset:
        home, version = location
        return lance.dataset(str(self._folder if home is None else self._folder / "tree" / home), version=version)

    def _files_of(self, location: Location) -> set[str]:
        dataset, found = self._open(location), self._own_files_of(location)
        home = self._manifests[location].rpartition("_versions/")[0]
        for fragment in dataset.get_fragments():
            found.update(f"{home}data/{file.path}" for file in fragment.metadata.files)
            if fragment.metadata.deletion_file is not None:
                found.add(f"{home}{fragment.metadata.deletion_file.path(fragment.fragment_id)}")
        for index in dataset.describe_indices():
            found.update(f"{home}_indices/{part.uuid}" for part in index.segments)
        return found

    def _own_files_of(self, location: Location) -> set[str]:
        manifest = self._manifests[location]
        return {manifest, *self._transactions_of(manifest, manifest.rpartition("_versions/")[0])}

    def _transactions_of(self, manifest: str, home: str) -> Iterator[str]:
        """A manifest holds the name of its transaction's file."""
        content = (self._folder / manifest).read_bytes()
        for path in self._paths:
            name = path.rpartition("/")[2]
            if path.startswith(f"{home}_transactions/") and name.encode() in content:
                yield path


def read_all(repo: ab.Repository, commit_id: str) -> dict[str, list[dict[str, object]]]:
    """Every row of every table of a commit, by handles that were not open before."""
    Home.at(repo.uri).forget()
    snapshot = repo.snapshot_of(commit_id)
    return {key: sorted(snapshot[key].to_arrow().to_pylist(), key=repr) for key in snapshot}


def read_what_can_be_read(repo: ab.Repository, commit_ids: Iterable[str]) -> dict[str, object]:
    """The rows of each commit, or that it was collected."""
    found: dict[str, object] = {}
    for commit_id in commit_ids:
        try:
            found[commit_id] = read_all(repo, commit_id)
        except CollectedError as err:
            found[commit_id] = "collected" if commit_id in err.problem else err.problem
    return found
