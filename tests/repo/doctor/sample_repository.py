"""A repository with something of everything, what can be read of it, and ways to damage it."""

import re
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.format.doctor.findings_and_repairs import Finding
from anabranch.ids import TableKey
from anabranch.repo.log.entries import TableEntry
from anabranch.storage import open_store
from tests.repo.conftest import CUSTOMERS, ORDERS, SCHEMA, append, rows, table
from tests.sealing import reseal, with_fields

RENAMED = "in_c_sales.clients"
COMMITS = "_graph_commits.lance"

Contents = dict[str, dict[str, list[dict[str, Any]]]]


def furnish(repo: ab.Repository) -> None:
    """Branches pinned, live, nested and deleted, tags, runs, merges, schema changes, indices, compaction, a rename."""
    with repo.transaction(message="first") as tx:
        tx.create_table(ORDERS, SCHEMA, primary_key=["id"])
        tx.append(ORDERS, table(1, 2, 3))
        tx.create_table(CUSTOMERS, SCHEMA)
        tx.append(CUSTOMERS, table(10, 20))
    repo.index(ORDERS, "id")
    repo.tag_create("v1")
    repo.branch_create("dev")
    with repo.transaction("dev", message="on dev") as tx:
        tx.delete(ORDERS, "id = 1")
        tx.append(ORDERS, table(4))
    repo.branch_create_from("dev", "dev/deep")
    append(repo, 5, branch="dev/deep")
    repo.branch_create_from("main", "live", mode="live")
    append(repo, 6, branch="live")
    append(repo, 30, key=CUSTOMERS)
    append(repo, 40, key=CUSTOMERS)
    repo.compact([CUSTOMERS])
    repo.branch_create("merged")
    with repo.transaction("merged", message="to be merged") as tx:
        tx.add_columns(ORDERS, {"w": "id * 2"})
    repo.merge("merged", into="main")
    repo.branch_delete("merged")
    with repo.transaction(message="rename") as tx:
        tx.rename_table(CUSTOMERS, RENAMED)
    append(repo, 7, key=ORDERS)
    repo.reset("main", to="main~1")
    run = repo.begin_run("main", message="published")
    with run.transaction(message="step") as tx:
        tx.append(RENAMED, table(50))
    run.publish()
    over = repo.begin_run("dev", message="aborted")
    with over.transaction(message="step") as tx:
        tx.append(ORDERS, table(8))
    over.abort()
    with repo.transaction("dev", message="a table of dev only") as tx:
        tx.create_table("in_c_sales.own", pa.schema([("id", pa.int64())]))
    repo.tag_create("deep", ref="dev/deep")
    repo.history_sync()


def furnish_little(repo: ab.Repository) -> None:
    """As much as fits into few requests."""
    with repo.transaction(message="first") as tx:
        for key in (ORDERS, RENAMED):
            tx.create_table(key, SCHEMA, primary_key=["id"])
            tx.append(key, table(1, 2, 3))
    append(repo, 4, key=RENAMED)
    append(repo, 5, key=RENAMED)
    repo.branch_create("dev")
    with repo.transaction("dev", message="on dev") as tx:
        tx.delete(ORDERS, "id = 1")
        tx.append(ORDERS, table(4))


def read_all(repo: ab.Repository) -> Contents:
    """All rows that every branch, tag and commit shows; nothing of what cannot be read."""
    found: Contents = {}
    for ref in names(repo):
        try:
            snapshot = repo.snapshot_of(ref)
            found[ref] = {key: rows(snapshot[key]) for key in snapshot}
        except AnabranchError:
            continue
    return found


def names(repo: ab.Repository) -> list[str]:
    refs = ["main", "dev", "dev/deep", "live", "v1", "deep"]  # some repositories have only some of them
    commits = (path.removeprefix("_commits/").removesuffix(".json") for path in Files(repo).list("_commits"))
    return [*refs, *(commit for commit in commits if not is_hidden(repo, commit))]


def is_hidden(repo: ab.Repository, commit_id: str) -> bool:
    """Return whether a commit belongs to a run, or to no branch."""
    text = Files(repo).text(f"_commits/{commit_id}.json")
    return '"manifest_branch":"__run__' in text


class Files:
    """The objects of a repository, to be damaged."""

    def __init__(self, repo: ab.Repository) -> None:
        self.repo = repo
        self._store = open_store(repo.uri, repo.storage_options)

    def list(self, folder: str = "", ending: str = "") -> list[str]:
        return sorted(info.path for info in self._store.list(folder) if info.path.endswith(ending))

    def get(self, path: str) -> bytes:
        return self._store.get(path)

    def text(self, path: str) -> str:
        return self.get(path).decode(errors="replace")

    def put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def delete(self, path: str) -> None:
        self._store.delete(path)

    def tear(self, path: str) -> None:
        """Leave half of an object."""
        data = self.get(path)
        self.put(path, data[: len(data) // 2])

    def remove_folder(self, folder: str) -> None:
        for path in self.list(folder):
            self.delete(path)

    def edit(self, path: str, **changes: Any) -> None:
        """Change fields of a JSON object, with the checksum that belongs to them."""
        self.put(path, with_fields(self.get(path), **changes))

    def log(self, branch: str, number: int) -> str:
        return f"_versions/{branch.replace('/', '%2F')}/{(1 << 64) - 1 - number:020d}.json"

    def head(self, branch: str = "main") -> int:
        return self.repo.branch_get(branch).version

    def commit(self, ref: str) -> str:
        return f"_commits/{self.repo.snapshot_of(ref).id}.json"

    def entry(self, key: str = ORDERS, ref: str = "main") -> TableEntry:
        return self.repo.snapshot_of(ref).entries[TableKey.parse(key)]

    def home(self, key: str = ORDERS, ref: str = "main") -> str:
        entry = self.entry(key, ref)
        return f"tables/{entry.dataset}" + ("" if entry.home is None else f"/tree/{entry.home}")

    def manifest(self, key: str = ORDERS, ref: str = "main") -> str:
        return f"{self.home(key, ref)}/_versions/d{self.entry(key, ref).version}.manifest"

    def data_of(self, key: str, ref: str) -> str:
        """A data file that only this branch has written, as its newest fragment."""
        version_ref = self.repo.snapshot_of(ref)[key].version_ref
        return f"{self.home(key, ref)}/data/{version_ref.open().get_fragments()[-1].metadata.files[0].path}"

    def ref_of(self, key: str, ref: str) -> str:
        entry = self.entry(key, ref)
        return f"tables/{entry.dataset}/_refs/branches/{str(entry.home).replace('/', '%2F')}.json"

    def replace_everywhere(self, pattern: str, by: str) -> None:
        """Change a text in all logs and commits alike, as if it had been written so."""
        for path in [*self.list("_versions", ".json"), *self.list("_commits"), *self.list("_runs", ".json")]:
            text = self.text(path)
            if re.search(pattern, text):
                self.put(path, reseal(path, re.sub(pattern, by, text).encode()))
        for path in [*self.list("_versions", "hint"), *self.list("_runs", "hint")]:
            self.delete(path)


def named(finding: Finding) -> set[str]:
    """The explanation of a finding that cannot be read."""
    return {*finding.refs, *finding.commits}
