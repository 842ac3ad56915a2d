"""Which columns updates have changed between two versions is found from their transactions."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from anabranch.format import staging
from anabranch.format.compare.difference import descends_from, find_updated_columns, step_back
from anabranch.format.home import Home
from anabranch.format.layout.listing import manifest_path
from anabranch.format.staging import VersionRef


def rows(start: int, count: int) -> pa.Table:
    ids = list(range(start, start + count))
    points = [{"x": number, "y": float(number)} for number in ids]
    return pa.table({"id": ids, "v": ids, "w": [str(number) for number in ids], "p": points})


@pytest.fixture
def version_ref(tmp_path: Path) -> VersionRef:
    made = staging.create_empty(Home.at(str(tmp_path / "t.lance"), {}), rows(0, 1).schema)
    return staging.append(made, rows(0, 50))


def updated(version_ref: VersionRef, **assignments: str) -> VersionRef:
    return staging.update(version_ref, assignments, where="id < 20").version_ref


def test_same_version_has_no_updated_columns(version_ref: VersionRef) -> None:
    assert find_updated_columns(version_ref, version_ref) == frozenset()


def test_columns_of_several_updates_are_joined(version_ref: VersionRef) -> None:
    later = updated(updated(version_ref, v="v + 1"), w="'x'")
    assert find_updated_columns(version_ref, later) == frozenset({"v", "w"})
    assert find_updated_columns(later, version_ref) is None
    assert descends_from(later, version_ref)


def test_update_of_a_struct_names_its_column(version_ref: VersionRef) -> None:
    assert find_updated_columns(version_ref, updated(version_ref, p="p")) == frozenset({"p"})


def test_other_changes_are_unknown(version_ref: VersionRef) -> None:
    after = updated(version_ref, v="v + 1")
    changes = {
        "append": staging.append(after, rows(100, 2)),
        "delete": staging.delete(after, "id = 3").version_ref,
        "upsert with a new row": staging.upsert(after, rows(49, 2), keys=["id"]).version_ref,
        "overwrite": staging.overwrite(after, rows(0, 50)),
    }
    for name, changed in changes.items():
        assert find_updated_columns(version_ref, changed) is None, name
        assert find_updated_columns(version_ref, updated(changed, v="0")) is None, name


def test_update_by_another_tool_is_unknown(version_ref: VersionRef) -> None:
    home = version_ref.home
    staging.settle(home, version_ref.version, expected_head=1)
    lance.dataset(home.uri).update({"v": "v + 1"}, where="id < 20")
    newest = VersionRef(home=home, version=lance.dataset(home.uri).version)
    assert descends_from(newest, version_ref)
    assert find_updated_columns(version_ref, newest) is None


def test_row_ids_stay_with_the_rows_of_updates(version_ref: VersionRef) -> None:
    later = updated(version_ref, v="v + 1")
    ids = [
        dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))
        for found in (one.open().to_table(columns=["id"], with_row_id=True) for one in (version_ref, later))
    ]
    assert ids[0] == ids[1]


def test_rebuilt_version_descends_from_the_ordinary_one_before_it(version_ref: VersionRef) -> None:
    """A repair writes the manifest from the ordinary version that shows it, whose transaction names this version."""
    home = version_ref.home
    staging.settle(home, version_ref.version, expected_head=1)
    rebuilt = staging.append(staging.append(version_ref, rows(50, 1)), rows(51, 1))
    staging.settle(home, rebuilt.version, expected_head=2)
    home.store().delete(manifest_path(rebuilt.version))
    assert staging.rebuild_staged(home, rebuilt.version)
    assert step_back(rebuilt) == VersionRef(home=home, version=2)
    assert descends_from(staging.append(rebuilt, rows(52, 1)), version_ref)
    assert find_updated_columns(version_ref, rebuilt) is None


def test_rebuilt_version_of_older_rows_has_no_known_ancestor(version_ref: VersionRef) -> None:
    home = version_ref.home
    later = staging.append(version_ref, rows(50, 1))
    staging.settle(home, later.version, expected_head=1)
    staging.settle(home, version_ref.version, expected_head=2)
    home.store().delete(manifest_path(version_ref.version))
    assert staging.rebuild_staged(home, version_ref.version)
    assert step_back(version_ref) is None
    assert not descends_from(version_ref, later)
