"""What a repository from an untrusted source can do: nothing outside its root, and no crash but an error of ours."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.bootstrap import open_damaged_repository
from anabranch.errors import AnabranchError, CorruptError, InvalidNameError, LinkError
from anabranch.storage import documents
from tests.repo.conftest import CUSTOMERS, ORDERS, append, fill_lake, ids, table
from tests.repo.gc.object_ages import pass_time


@pytest.fixture
def local(tmp_path: Path) -> ab.Repository:
    repo = ab.init(str(tmp_path / "lake"))
    fill_lake(repo)
    return repo


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A Lance dataset of the same columns beside the repository, with a few other files."""
    folder = tmp_path / "victim"
    lance.write_dataset(table(7, 8), str(folder / "x.lance"), enable_stable_row_ids=True)
    (folder / "notes.txt").write_text("private")
    return folder


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewrite_head(repo: ab.Repository, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the newest entry of main as its author could: with a valid checksum, and without the hint beside it."""
    log = Path(repo.uri, "_versions", "main")
    newest = min(log.glob("*.json"))
    fields = documents.load(newest.read_bytes(), path=newest.name)
    change(fields)
    newest.write_bytes(documents.dump(fields))
    (log / "hint").unlink()


def set_entry(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields["head"]["changes"][ORDERS].update(values)


TABLE_FIELDS: dict[str, dict[str, object]] = {
    "parent folders": {"dataset": "../../victim/x.lance"},
    "parent folders inside": {"dataset": "in_c_sales/../../../victim/x.lance"},
    "absolute": {"dataset": "/etc/x.lance"},
    "deep": {"dataset": "a/b/x.lance"},
    "a folder of ours": {"dataset": "../_commits"},
    "no text": {"dataset": 7},
    "control": {"dataset": "in_c_sales/a\x1b[2J.lance"},
    "home above": {"home": "../../../../victim/x.lance"},
    "home of dots": {"home": "main/../../../.."},
    "home of a number": {"home": 5},
    "home in the layout": {"home": "main/_versions"},
    "huge version": {"version": str(2**64)},
    "long version": {"version": "9" * 5000},
    "negative head": {"head": "-1"},
    "rows of text": {"rows": "many"},
    "forked from above": {"forked_from": ["../../x", "1"]},
}


@pytest.mark.parametrize("fields", TABLE_FIELDS.values(), ids=TABLE_FIELDS)
def test_table_entry_with_hostile_fields_is_refused(
    local: ab.Repository, victim: Path, fields: dict[str, object]
) -> None:
    rewrite_head(local, set_entry(**fields))
    before = state(victim)
    operations: list[Callable[[ab.Repository], object]] = [
        lambda repo: repo.snapshot()[ORDERS].to_arrow(),
        lambda repo: append(repo, 9),
        lambda repo: repo.gc(),
    ]
    for operation in operations:
        with pytest.raises(CorruptError, match="_versions/main/"):
            operation(ab.open(local.uri))
    assert state(victim) == before


def set_state(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields["state"].update(values)


def set_commit(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda fields: fields["head"]["commit"].update(values)


ENTRIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "branch": lambda fields: fields.update(branch="../../victim"),
    "number": lambda fields: fields.update(number=10**30),
    "time": lambda fields: fields.update(at=10**30),
    "actor": lambda fields: fields.update(actor=["root"]),
    "parent": set_state(parent={"branch": "..", "commit": "01"}),
    "parent commit": set_state(parent={"branch": None, "commit": "../../_repo"}),
    "own tables": set_state(own=["../x.y"]),
    "expiry": set_state(expires_at=10**19),
    "base": lambda fields: fields["head"].update(base="../../victim/notes"),
    "older": lambda fields: fields["head"].update(older="../x"),
    "commit id": set_commit(graph_commit_id="../../x"),
    "commit's parent": set_commit(parent_commit_id="a/b"),
    "commit's tables": set_commit(tables=["../../x"]),
    "commit's time": set_commit(created_at=2**63),
    "commit's message": set_commit(message={"a": 1}),
    "commit's metadata": set_commit(metadata={"a": ["b"]}),
}


@pytest.mark.parametrize("change", ENTRIES.values(), ids=ENTRIES)
def test_log_entry_with_hostile_fields_is_refused(
    local: ab.Repository, change: Callable[[dict[str, Any]], None]
) -> None:
    rewrite_head(local, change)
    with pytest.raises(CorruptError, match="_versions/main/"):
        ab.open(local.uri).snapshot()


@pytest.mark.parametrize(
    "data",
    [b'{"format":2,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", b'{"format":2,"x":' + b"9" * 100_000 + b"}"],
    ids=["deep nesting", "long number"],
)
@pytest.mark.parametrize("path", ["_repo.json", "_versions/main/{}", "_commits/{}"])
def test_json_that_breaks_parsers_is_damage(local: ab.Repository, data: bytes, path: str) -> None:
    commit_id = local.snapshot().commit.graph_commit_id
    folder = Path(local.uri, path).parent
    target = Path(local.uri, path) if "{}" not in path else min(folder.glob("*.json"))
    if "_commits" in path:
        target = folder / f"{commit_id}.json"
    target.write_bytes(data)
    (Path(local.uri) / "_versions/main/hint").unlink()
    with pytest.raises(CorruptError):
        ab.open(local.uri).snapshot_of("main" if "main" in path else commit_id)
    open_damaged_repository(local.uri).doctor(repair=True)


def operate(repo: ab.Repository) -> list[str]:
    """Run everything that deletes, rewrites or measures; the errors, all of them of ours."""
    operations: list[Callable[[], object]] = [
        lambda: repo.snapshot()[ORDERS].to_arrow(),
        lambda: append(repo, 9),
        lambda: repo.storage_report(),
        lambda: repo.gc(keep_last=1),
        lambda: repo.doctor(repair=True),
        lambda: ab.relocate(repo.uri),
        lambda: repo.branch_delete("dev", purge=True),
        lambda: repo.branch_list(),
        lambda: repo.gc(keep_last=1),
    ]
    errors = []
    for operation in operations:
        try:
            operation()
        except AnabranchError as err:
            errors.append(type(err).__name__)
    return errors


LINKS = {
    "table folder": ("tables/in_c_sales/orders.lance", "x.lance"),
    "unused table folder": ("tables/in_c_sales/other.lance", "x.lance"),
    "bucket": ("tables/more", ""),
    "versions": ("tables/in_c_sales/orders.lance/_versions", "x.lance/_versions"),
    "data": ("tables/in_c_sales/orders.lance/data", "x.lance/data"),
    "transactions": ("tables/in_c_sales/orders.lance/_transactions", "x.lance/_transactions"),
    "tree": ("tables/in_c_sales/orders.lance/tree", ""),
    "refs": ("tables/in_c_sales/orders.lance/_refs", ""),
    "log": ("_versions/other", ""),
    "leases": ("_leases", ""),
    "removals": ("_gc", ""),
    "history": ("_graph_commits.lance", "x.lance"),
}


@pytest.mark.parametrize("name", LINKS)
def test_links_below_the_root_are_never_followed(local: ab.Repository, victim: Path, name: str) -> None:
    local.branch_create("dev")
    append(local, 4, branch="dev")
    path, target = LINKS[name]
    link = Path(local.uri, path)
    if link.exists():
        link.rename(victim.parent / "aside")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim / target, target_is_directory=True)
    pass_time(local)
    before = state(victim)
    operate(open_damaged_repository(local.uri))
    assert state(victim) == before
    assert link.is_symlink()


def test_table_behind_a_link_is_refused_by_name(local: ab.Repository, victim: Path) -> None:
    folder = Path(local.uri, "tables/in_c_sales/orders.lance")
    folder.rename(victim / "moved.lance")
    folder.symlink_to(victim / "moved.lance")
    before = state(victim)
    for operation in (lambda repo: ids(repo), lambda repo: append(repo, 9)):
        with pytest.raises(LinkError, match="orders"):
            operation(ab.open(local.uri))
    assert ids(ab.open(local.uri), CUSTOMERS) == [10, 20]
    assert state(victim) == before


def test_root_may_be_a_link(local: ab.Repository, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(local.uri)
    linked = ab.open(str(tmp_path / "link"))
    append(linked, 4)
    assert ids(linked) == ids(ab.open(local.uri)) == [1, 2, 3, 4]


def test_log_folder_with_a_hostile_name_is_not_a_branch(local: ab.Repository, victim: Path) -> None:
    log = Path(local.uri, "_versions")
    for name in ("..%2F..%2Fvictim", "%2E%2E", "a%00b"):
        (log / name).mkdir()
        (log / name / min((log / "main").glob("*.json")).name).write_bytes(
            min((log / "main").glob("*.json")).read_bytes()
        )
    repo = ab.open(local.uri)
    assert [branch.name for branch in repo.branch_list()] == ["main"]
    repo.gc()
    with pytest.raises(InvalidNameError):
        repo.snapshot_of("../../victim")


def test_dataset_ref_with_a_hostile_name_is_not_a_branch(local: ab.Repository, victim: Path) -> None:
    local.branch_create("dev")
    append(local, 4, branch="dev")
    root = Path(local.uri, "tables/in_c_sales/orders.lance")
    genuine = next((root / "_refs/branches").glob("*.json"))
    (root / "_refs/branches/..%2F..%2F..%2F..%2F..%2Fvictim%2Fx.lance.json").write_bytes(genuine.read_bytes())
    before = state(victim)
    dataset = ab.dataset(str(root))
    assert all(".." not in branch.name for branch in dataset.branch_list())
    for name in ("../../../../../victim/x.lance", "a/../../b"):
        with pytest.raises(AnabranchError):
            dataset.branch_delete(name)
    pass_time(local)
    local.gc(keep_last=1)
    local.doctor(repair=True)
    assert state(victim) == before


def test_base_path_is_read_and_never_deleted_from(local: ab.Repository, victim: Path) -> None:
    local.adopt("in_c_sales.linked", uri=str(victim / "x.lance"))
    local.branch_create("dev")
    append(local, 9, branch="dev", key="in_c_sales.linked")
    assert sorted(local.snapshot()["in_c_sales.linked"].to_arrow()["id"].to_pylist()) == [7, 8]
    # Adopting put a tag that holds the version; what follows must leave everything else there.
    before = {path: data for path, data in state(victim).items() if "_refs" not in path}
    local.branch_delete("dev", purge=True)
    with local.transaction() as tx:
        tx.drop_table("in_c_sales.linked")
    pass_time(local)
    local.gc(keep_last=1)
    local.doctor(repair=True)
    assert {path: data for path, data in state(victim).items() if "_refs" not in path} == before


def test_unfinished_clone_cannot_release_another_clone(local: ab.Repository, tmp_path: Path) -> None:
    """A folder from elsewhere may claim to be an unfinished clone, and name the registration of a genuine one."""
    ab.clone(local.uri, str(tmp_path / "genuine"))
    held = [clone.id for clone in local.clone_list() if clone.is_held]
    origin = Path(tmp_path / "genuine" / "_origin")
    first = documents.load(max(origin.glob("*.json")).read_bytes(), path="origin")
    assert first["registrations"] == [[local.uri, held[0]]]
    bait = tmp_path / "bait" / "_origin"
    bait.mkdir(parents=True)
    (bait / max(origin.glob("*.json")).name).write_bytes(documents.dump({**first, "state": "begun"}))
    ab.clone(local.uri, str(tmp_path / "bait"))
    assert {clone.id for clone in local.clone_list() if clone.is_held} >= set(held)


def test_hostile_objects_beside_the_logs_are_refused(local: ab.Repository) -> None:
    """Tags, leases and records of collections are read by gc, which must not trust them."""
    root = Path(local.uri)
    objects = {
        "_gc/01ARZ3NDEKTSV4RRFFQ69G5FAV.json": documents.dump({"commits": ["../../_repo"], "at": 0, "actor": None}),
        "_leases/__work__/01ARZ3NDEKTSV4RRFFQ69G5FAV": b"1e400 ../../x",
        "_tags/v1/18446744073709551614.json": documents.dump(
            {
                "name": "../v1",
                "commit_id": "../x",
                "description": "",
                "created_at": 0,
                "created_by": None,
                "number": 1,
                "is_deleted": False,
            }
        ),
    }
    for path, data in objects.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
        with pytest.raises(CorruptError, match=path.rpartition("/")[0]):
            ab.open(local.uri).gc()
        (root / path).unlink()


def test_schema_file_cannot_expand_without_bound(local: ab.Repository) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    for text in ("\n".join(lines), "tables: " + "[" * 5000, "tables: !!python/object/apply:os.system ['exit 1']"):
        with pytest.raises(AnabranchError):
            local.schema_plan(text)


def test_column_names_and_values_of_a_hostile_table_are_data(local: ab.Repository) -> None:
    with local.transaction() as tx:
        tx.create_table("in_c_sales.odd", pa.schema([("\x1b[2Jx", pa.string())]))
        tx.append("in_c_sales.odd", pa.table({"\x1b[2Jx": ["\x1b]0;title\x07"]}))
    assert json.dumps(local.snapshot()["in_c_sales.odd"].to_arrow().to_pylist()).isprintable()


def test_doctor_reports_a_table_behind_a_link_and_checks_the_rest(local: ab.Repository, victim: Path) -> None:
    folder = Path(local.uri, "tables/in_c_sales/orders.lance")
    folder.rename(victim / "moved.lance")
    folder.symlink_to(victim / "moved.lance")
    found = ab.open(local.uri).doctor(repair=True, rows=True).findings
    assert [(finding.kind.value, finding.subject) for finding in found] == [
        ("symbolic_link", "tables/in_c_sales/orders.lance")
    ]


def test_history_table_of_other_columns_is_a_finding(local: ab.Repository) -> None:
    local.history_sync()
    folder = Path(local.uri, "_graph_commits.lance")
    shutil.rmtree(folder)
    lance.write_dataset(pa.table({"x": [1]}), str(folder))
    found = ab.open(local.uri).doctor().findings
    assert [finding.kind.value for finding in found] == ["damaged_history"]
    ab.open(local.uri).doctor(repair=True)
    assert not ab.open(local.uri).doctor().findings


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"type": "no such"}]', '{"a": 1}', "7"])
def test_hostile_notes_of_a_column_are_an_error(local: ab.Repository, text: str) -> None:
    with local.transaction() as tx:
        tx.annotate(ORDERS, {}, columns={"id": {"anabranch:indices": text}})
    with pytest.raises(CorruptError, match="id"):
        local.schema_show()
